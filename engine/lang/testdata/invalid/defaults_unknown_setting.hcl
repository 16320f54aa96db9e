experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

defaults {
  updatess = 3 # ERROR: Unknown setting ; No stage of this file has a setting updatess; did you mean updates?
}

stage "grpo" "arm" {
  policy = stage.model.base.checkpoint
  tasks  = stage.tasks.t.train
}
