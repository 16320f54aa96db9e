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
  for_each = ["a", "b"]
}

stage "grpo" "arm" {
  policy = module.m.stage.model.base.checkpoint # ERROR: Several instances ; module.m["a"].stage
  tasks  = stage.tasks.t.train
}
