experiment {
  question = "What is wrong here?"
}

locals {
  größe = 3
  x     = local.größee # ERROR: Unknown local ; größe
}
