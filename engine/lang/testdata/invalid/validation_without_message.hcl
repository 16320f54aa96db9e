experiment {
  question = "What is wrong here?"
}

variable "n" {
  default = 3
  validation { # ERROR: Missing setting ; message
    condition = var.n > 0
  }
}
