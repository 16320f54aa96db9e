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
  source   = "../modules/plain.hcl"
  for_each = {}
}

stage "grpo" "arm" {
  policy = module.m["a"].stage.model.base.checkpoint # ERROR: Unknown key ; is empty
  tasks  = stage.tasks.t.train
}
