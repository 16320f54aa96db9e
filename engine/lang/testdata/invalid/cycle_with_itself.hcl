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

stage "rollout" "a" { # ERROR: Dependency cycle
  policy = stage.model.base.checkpoint
  tasks  = stage.tasks.t.train
  depends_on = [stage.rollout.a]
}
