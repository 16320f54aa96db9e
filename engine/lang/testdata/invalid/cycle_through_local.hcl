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

locals {
  start = stage.sft.warm.checkpoint # ERROR: Dependency cycle ; local.start → stage.sft.warm → local.start
}

stage "sft" "warm" {
  policy = local.start
  data   = stage.curate.data.expert
}
