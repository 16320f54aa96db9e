experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

stage "curate" "data" {
  tasks = stage.tasks.t.train
}

stage "grpo" "arm" {
  policy = stage.model.base.checkpoint
  tasks  = stage.tasks.t.train
  group  = 1 # ERROR: Group too small
}
