experiment {
  question = "What is wrong here?"
}

locals {
  base = timestamp() # ERROR: Call to unknown function
}
