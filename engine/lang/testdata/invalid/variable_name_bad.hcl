experiment {
  question = "What is wrong here?"
}

variable "learning rate" { # ERROR: Bad name
  default = 3
}
