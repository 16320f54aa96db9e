experiment {
  question = "What is wrong here?"
}

variable "n" {
  type    = nubmer # ERROR: Invalid type specification ; number
  default = 3
}

locals {
  m = var.n
}
