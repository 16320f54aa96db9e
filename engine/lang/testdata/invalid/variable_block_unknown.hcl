experiment {
  question = "What is wrong here?"
}

variable "n" {
  default = 3
  validaton { # ERROR: Unknown block ; validation
    condition = true
    message   = "no"
  }
}

locals {
  m = var.n
}
