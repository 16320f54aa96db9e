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

stage "rollout" "a" { # ERROR: Dependency cycle ; stage.rollout.a → stage.sft.c → stage.curate.b → stage.rollout.a
  policy = stage.sft.c.checkpoint
  tasks  = stage.tasks.t.train
}
stage "curate" "b" {
  tasks    = stage.tasks.t.train
  failures = stage.rollout.a.trajectories
}
stage "sft" "c" {
  policy = stage.model.base.checkpoint
  data   = stage.curate.b.mixed
}
