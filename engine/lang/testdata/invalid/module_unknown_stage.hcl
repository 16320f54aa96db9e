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

stage "grpo" "arm" {
  policy = module.m.stage.model.bsae.checkpoint # ERROR: Unknown key ; did you mean base?
  tasks  = stage.tasks.t.train
}
