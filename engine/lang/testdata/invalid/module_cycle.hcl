experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

module "m" { # ERROR: Dependency cycle ; module.m
  source = "../modules/base.hcl"
  layers = 2
  tasks  = stage.curate.data.expert
}

stage "rollout" "r" {
  policy = module.m.stage.model.base.checkpoint
  tasks  = stage.tasks.t.train
}

stage "curate" "data" {
  tasks    = stage.tasks.t.train
  failures = [stage.rollout.r.trajectories]
}
