# SET: grpo.arm[lr=2].updates=3 # ERROR: Unknown stage ; did you mean grpo.arm[lr=1]?
# SET: module.m[c].model.base.layers=3 # ERROR: Unknown stage ; did you mean module.m[a].model.base?
experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

module "m" {
  source   = "../modules/plain.hcl"
  for_each = ["a", "b"]
}

stage "grpo" "arm" {
  for_each = ["lr=1"]
  policy   = stage.model.base.checkpoint
  tasks    = stage.tasks.t.train
}
