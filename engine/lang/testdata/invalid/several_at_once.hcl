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
  policy = stage.model.base.checkpiont # ERROR: Unknown port ; checkpoint
  data   = stage.curate.data.expert
  epochs = 1.5 # ERROR: Bad number
  toekns { # ERROR: Unknown block ; tokens
  }
}
stage "evla" "x" { # ERROR: Unknown kind ; eval
  policy = stage.sft.warn.checkpoint # ERROR: Reference to nothing ; stage.sft.warm
}
