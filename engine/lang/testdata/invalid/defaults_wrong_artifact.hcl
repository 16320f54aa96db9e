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
  policy = stage.tasks.t.train # ERROR: Wrong artifact type
}

stage "grpo" "arm" {
  tasks = stage.tasks.t.train
}
