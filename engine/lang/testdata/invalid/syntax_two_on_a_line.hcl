experiment {
  question = "What is wrong here?"
}

locals {
  a = 1 b = 2 # ERROR: Missing newline after argument
}
