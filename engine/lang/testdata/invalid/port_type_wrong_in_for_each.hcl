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

stage "eval" "arm" {
  for_each = { a = stage.model.base.checkpoint, b = stage.curate.data.mixed }
  policy   = each.value # ERROR: Wrong artifact type
  tasks    = stage.tasks.t.test
}
