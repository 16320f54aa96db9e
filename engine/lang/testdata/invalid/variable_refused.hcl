experiment {
  question = "What is wrong here?"
}

variable "epochs" {
  default = 0
  validation {
    condition = var.epochs >= 1 # ERROR: Invalid value ; At least one
    message   = "At least one epoch."
  }
}
