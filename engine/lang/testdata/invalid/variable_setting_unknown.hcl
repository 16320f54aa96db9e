experiment {
  question = "What is wrong here?"
}

variable "epochs" {
  defualt = 3 # ERROR: Unknown setting ; default
  default = 3
}
