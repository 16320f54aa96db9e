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

stage "sft" "warm" {
  policy = each.value # ERROR: No for_each here
  data   = stage.curate.data.expert
}
