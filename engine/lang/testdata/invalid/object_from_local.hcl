experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

locals {
  clip = { hgh = 1 }
}

stage "grpo" "arm" {
  policy = stage.model.base.checkpoint
  tasks  = stage.tasks.t.train
  clip = local.clip # ERROR: Unknown setting ; clip has no setting hgh; did you mean high?
}
