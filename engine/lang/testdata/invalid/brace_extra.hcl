experiment {
  question = "What is wrong here?"
}

locals {
  a = 1
}
} # ERROR: Argument or block definition required
