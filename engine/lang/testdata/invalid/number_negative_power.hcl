experiment {
  question = "What is wrong here?"
}

locals {
  lr = 1e # ERROR: Missing newline after argument
}
