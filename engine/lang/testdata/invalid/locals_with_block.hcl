experiment {
  question = "What is wrong here?"
}

locals {
  inits { # ERROR: Unknown block ; inits = { … }
  }
}
