experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

module "m" { # ERROR: Missing variable ; Module m needs the variable layers
  source = "../modules/base.hcl"
}
