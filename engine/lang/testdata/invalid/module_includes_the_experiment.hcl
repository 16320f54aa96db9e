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
  source = "module_includes_the_experiment.hcl" # ERROR: Module includes itself ; a file of the experiment
}

