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
  for_each = {
    small = 2
    large = 12
    small = 4 # ERROR: Duplicate key ; small
  }
  layers = each.value
}
