experiment {
  question = "What is wrong here?"
}

variable "n" {
  default = 3
  validation {
    condition = var.n < local.most # ERROR: Only variables here ; var.n
    message   = "Small."
  }
}

locals {
  most = 5
}
