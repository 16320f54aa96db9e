experiment {
  question = "What is wrong here?"
}

locals {
  base = lenght([1]) # ERROR: Call to unknown function ; length
}
