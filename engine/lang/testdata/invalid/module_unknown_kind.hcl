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
  policy = module.m.stage.modle.base.checkpoint # ERROR: Reference to nothing ; in module.m
  tasks  = stage.tasks.t.train
}
