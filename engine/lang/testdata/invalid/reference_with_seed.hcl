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

stage "eval" "e" {
  policy = stage.model.base@1.checkpoint # ERROR: Invalid character
  tasks  = stage.tasks.t.test
}
