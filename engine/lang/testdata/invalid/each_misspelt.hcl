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
  for_each = { a = stage.model.base.checkpoint }
  policy   = each.valu # ERROR: Unknown name ; each.value
  data     = stage.curate.data.expert
}
