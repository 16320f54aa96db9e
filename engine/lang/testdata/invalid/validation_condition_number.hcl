experiment {
  question = "What is wrong here?"
}

variable "n" {
  default = 3
  validation {
    condition = var.n # ERROR: Wrong type ; true or false
    message   = "Positive."
  }
}
