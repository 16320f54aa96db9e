# SET: grpo.arm.for_each=["a"] # ERROR: Bad override ; change the file
# SET: grpo.arm.depends_on=[stage.model.base] # ERROR: Bad override ; depends_on defines
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
}
