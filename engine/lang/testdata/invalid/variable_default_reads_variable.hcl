experiment {
  question = "What is wrong here?"
}

variable "n" {
  default = 3
}

variable "m" {
  default = var.n # ERROR: Variable in a default ; locals
}

locals {
  k = var.m + var.n
}
