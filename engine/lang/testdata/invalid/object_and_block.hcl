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
  policy = stage.model.base.checkpoint
  tasks  = stage.tasks.t.train
  clip = { low = 0.1 }
  clip { # ERROR: Duplicate block ; as a block or as a value
    high = 0.2
  }
}
