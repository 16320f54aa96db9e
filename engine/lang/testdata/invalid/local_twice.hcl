experiment {
  question = "What is wrong here?"
}

locals {
  base = 3
}
locals {
  base = 4 # ERROR: Duplicate local
}
