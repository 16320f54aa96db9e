experiment {
  question = "What is wrong here?"
}

locals {
  a = "café" # ERROR: Invalid character encoding
}
