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
  policy = stage.modle.base.checkpoint # ERROR: Reference to nothing ; model
  tasks  = stage.tasks.t.train
}
