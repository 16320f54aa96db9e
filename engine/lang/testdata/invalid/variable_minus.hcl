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

variable "epochs" {
  default = 3
}
stage "sft" "warm" {
  policy = stage.model.base.checkpoint
  data   = stage.curate.data.expert
  epochs = var.epochs-1 # ERROR: Unknown variable ; var.epochs - 1
}
