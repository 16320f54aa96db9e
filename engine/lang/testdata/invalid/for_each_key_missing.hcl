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
  for_each = { small = 2 }
  layers   = each.value
}

stage "eval" "e" {
  policy = stage.model.m.checkpoint # ERROR: Several instances ; stage.model.m["small"]
  tasks  = stage.tasks.t.train
}
