experiment {
  question = "What is wrong here?"
}

variable "n" {
  type    = "number" # ERROR: Invalid type specification
  default = 3
}

locals {
  m = var.n
}
