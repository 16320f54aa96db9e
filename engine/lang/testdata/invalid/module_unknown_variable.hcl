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
  source = "../modules/base.hcl"
  layers = 2
  layer  = 3 # ERROR: Unknown variable ; Module m has no variable layer; did you mean layers?
}

