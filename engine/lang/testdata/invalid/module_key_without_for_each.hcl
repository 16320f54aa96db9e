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
  policy = module.m["a"].stage.model.base.checkpoint # ERROR: Unknown key
  tasks  = stage.tasks.t.train
}
