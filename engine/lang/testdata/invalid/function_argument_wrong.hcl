experiment {
  question = "What is wrong here?"
}

locals {
  x = abs("two") # ERROR: Invalid function argument
}
