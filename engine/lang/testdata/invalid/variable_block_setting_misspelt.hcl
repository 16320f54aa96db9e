experiment {
  question = "What is wrong here?"
}

variable "n" {
  default = 3
  validation {
    conditon = var.n > 0 # ERROR: Unknown setting ; condition
    message  = "Positive."
  }
}
