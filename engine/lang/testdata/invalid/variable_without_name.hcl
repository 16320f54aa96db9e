experiment {
  question = "What is wrong here?"
}

variable { # ERROR: Wrong labels ; variable "NAME"
  default = 3
}
