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
  clip = { low = 1 }
}

defaults {
  clip = { low = 2 } # ERROR: Conflicting defaults ; clip.low
}

stage "grpo" "arm" {
  policy = stage.model.base.checkpoint
  tasks  = stage.tasks.t.train
}
