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
  for_each = matrix({ a = range(400), b = range(400) }) # ERROR: Invalid function argument ; may have 100000 combinations
}
