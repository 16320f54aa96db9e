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
  policy = module.m.model.base.checkpoint # ERROR: Unknown key ; It has module, stage.
  tasks  = stage.tasks.t.train
}
