experiment {
  question = "What is wrong here?"
}

locals {
  sizes = [2, 12]
  mine  = local.sizes[2] # ERROR: Invalid index
}
