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
  for_each = toset([1, 2]) # ERROR: Wrong type ; set of strings
  layers   = 2
}
