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
  policy = stage.model.base.checkpoint
  data   = stage.curate.data.expert
  lr = 1e999 # ERROR: Bad number ; too large
}
