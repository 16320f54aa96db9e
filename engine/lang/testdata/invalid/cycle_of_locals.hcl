experiment {
  question = "What is wrong here?"
}

locals {
  a = local.b # ERROR: Dependency cycle
  b = local.a
}
