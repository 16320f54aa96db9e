experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

stage "grpo" "arm" {
  policy = module.n.stage.model.base.checkpoint # ERROR: Reference to nothing ; There is no module "n"
  tasks  = stage.tasks.t.train
}
