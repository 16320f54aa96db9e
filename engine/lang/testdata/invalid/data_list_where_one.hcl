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
  policy = [stage.model.base.checkpoint] # ERROR: Wrong type ; checkpoint
  tasks  = stage.tasks.t.test
}
