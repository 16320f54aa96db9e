experiment {
  question = "What is wrong here?"
}

locals {
  sizes = { small = 2, large = 12 }
  mine  = local.sizes.smal # ERROR: Unknown key ; small
}
