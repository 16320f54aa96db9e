experiment {
  question = "Is a base for others."
}

variable "layers" {
  type = number
}

variable "tasks" {
  type    = any
  default = null
}

stage "model" "base" {
  layers = var.layers
}

stage "tasks" "own" {
  source = "bfcl"
}

stage "curate" "own" {
  tasks = stage.tasks.own.train
}

stage "sft" "arm" {
  for_each = ["a", "b"]
  policy   = stage.model.base.checkpoint
  data     = var.tasks == null ? stage.curate.own.expert : var.tasks
}
