experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

module "m" {
  source = "../modules/plain.hcl"
}

module "m" { # ERROR: Duplicate module
  source = "../modules/plain.hcl"
}
