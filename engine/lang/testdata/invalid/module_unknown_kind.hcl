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
  policy = module.m.stage.modle.base.checkpoint # ERROR: Unknown key ; module.m.stage has no key "modle"; did you mean model?
  tasks  = stage.tasks.t.train
}
