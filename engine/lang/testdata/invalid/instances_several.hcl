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
  for_each = toset(["a", "b"])
  policy   = stage.model.base.checkpoint
  data     = stage.curate.data.expert
}
stage "grpo" "arm" {
  policy = stage.sft.warm # ERROR: Several instances ; stage.sft.warm["a"]
  tasks  = stage.tasks.t.train
}
