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

locals {
  start = stage.curate.data.expert
}
stage "grpo" "arm" {
  policy = local.start # ERROR: Wrong artifact type
  tasks  = stage.tasks.t.train
}
