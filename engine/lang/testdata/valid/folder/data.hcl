locals {
  base = stage.model.base.checkpoint
}

stage "model" "base" {
  path = file("raw.csv")
}

stage "tasks" "bfcl" {
  source = "bfcl"
}

stage "curate" "data" {
  tasks = stage.tasks.bfcl.train
  seed  = 7
}
