experiment {
  question = "What is wrong here?"
}

variable "epochs" {
  type    = number
  default = "three" # ERROR: Wrong type
}
