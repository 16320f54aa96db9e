experiment {
  question = "What is wrong here?"
}

locals {
  x = abs(2, 3) # ERROR: Too many function arguments
}
