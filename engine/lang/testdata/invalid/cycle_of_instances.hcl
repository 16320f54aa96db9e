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

stage "sft" "warm" { # ERROR: Dependency cycle ; stage.sft.warm → stage.sft.warm
  for_each = { a = 1, b = 2 }
  policy   = each.key == "a" ? stage.model.base.checkpoint : stage.sft.warm["a"].checkpoint
  data     = stage.curate.data.expert
}
