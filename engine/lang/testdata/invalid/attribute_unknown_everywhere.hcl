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

stage "curate" "more" {
  tasks       = stage.tasks.t.train
  sedd        = 3 # ERROR: Unknown setting ; seed
}
