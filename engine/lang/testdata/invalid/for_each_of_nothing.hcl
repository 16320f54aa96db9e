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

stage "model" "m" {
  for_each = {}
  layers   = 2
}

stage "eval" "e" {
  policy = stage.model.m["a"].checkpoint # ERROR: Unknown key ; is empty
  tasks  = stage.tasks.t.train
}
