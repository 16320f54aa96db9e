experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

stage "grpo" "arm" {
  policy = stage.model.base.checkpoint
  tasks  = stage.tasks.t.train
  for_each = matrix({ lr = [1, 2] }, [{ lr = 1 }, { lr = 2 }]) # ERROR: Invalid function argument ; no combination is left
}
