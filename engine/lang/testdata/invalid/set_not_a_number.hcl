# SET: grpo.arm.updates="many" # ERROR: Wrong type ; updates must be a number
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
}
