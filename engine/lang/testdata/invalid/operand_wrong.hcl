experiment {
  question = "What is wrong here?"
}

locals {
  base = 1 + "two" # ERROR: Invalid operand
}
