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
  updates = 3
}

defaults "grpo" "rc-grpo" {
  updates = 4 # ERROR: Conflicting defaults ; defaults "grpo" "rc-grpo"
}

stage "grpo" "arm" {
  policy = stage.model.base.checkpoint
  tasks  = stage.tasks.t.train
}
