experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

module "m 1" { # ERROR: Bad name
  source = "../modules/plain.hcl"
}
