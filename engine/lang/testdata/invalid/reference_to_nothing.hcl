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
  policy = stage.model.bose.checkpoint # ERROR: Reference to nothing ; stage.model.base
  tasks  = stage.tasks.t.train
}
