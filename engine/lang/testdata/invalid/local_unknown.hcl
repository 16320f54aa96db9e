experiment {
  question = "What is wrong here?"
}

locals {
  base = 3
  next = local.bsae + 1 # ERROR: Unknown local ; local.base
}
