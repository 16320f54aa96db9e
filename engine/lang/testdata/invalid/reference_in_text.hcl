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

stage "exec" "x" {
  command = ["cat", "${stage.model.base.checkpoint}"] # ERROR: Wrong type ; a reference to stage.model.base.checkpoint
}
