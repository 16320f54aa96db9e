experiment {
  question = "What is wrong here?"
}

locals {
  base = 3
  next = base + 1 # ERROR: Unknown name ; local.base
}
