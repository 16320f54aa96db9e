experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

module "m" "n" { # ERROR: Wrong labels ; module "NAME"
  source = "../modules/plain.hcl"
}
