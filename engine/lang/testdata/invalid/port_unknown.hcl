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

stage "rollout" "explore" {
  policy = stage.model.base.chekpoint # ERROR: Unknown port ; checkpoint
  tasks  = stage.tasks.t.train
}
