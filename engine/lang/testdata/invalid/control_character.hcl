experiment {
  question = "What is wrong here?"
}

locals {
  a =  # ERROR: Invalid character
}
