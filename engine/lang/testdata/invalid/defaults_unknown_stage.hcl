experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

defaults "grpo" {
  policy = stage.model.bsae.checkpoint # ERROR: Reference to nothing ; did you mean stage.model.base?
}

stage "grpo" "arm" {
  policy = stage.model.base.checkpoint
  tasks  = stage.tasks.t.train
  updates = 1
}
