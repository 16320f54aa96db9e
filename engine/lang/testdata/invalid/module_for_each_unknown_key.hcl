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
  for_each = ["a", "b"]
}

stage "grpo" "arm" {
  policy = module.m["c"].stage.model.base.checkpoint # ERROR: Unknown key ; It has a, b.
  tasks  = stage.tasks.t.train
}
