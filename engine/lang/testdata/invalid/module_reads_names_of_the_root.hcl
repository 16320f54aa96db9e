experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

locals {
  layers = 2
}

module "m" {
  source = "../modules/root_names.hcl"
}

