experiment {
  question = "What is wrong here?"
}

locals {
  x = pow(2) # ERROR: Not enough function arguments
}
