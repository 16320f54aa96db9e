experiment {
  question = "What is wrong here?"
}

variable "epochs" {
  default = 3
}
variable "epochs" { # ERROR: Duplicate variable
  default = 4
}
