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
  policy = stage.grpo.arm.checkpoint
}

stage "grpo" "arm" { # ERROR: Dependency cycle ; The references in the defaults at
  tasks = stage.tasks.t.train
}
