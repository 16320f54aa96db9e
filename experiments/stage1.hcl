# Stage 1 on drills: settings of RCTP-FT are chosen by the aim of stage 1 alone, the gap between the reward tokens, at
# no loss of success under high. drills_base.hcl has the chosen settings. The seeds occur in no other experiment.
# Cost: about half an hour on two cores (two seeds, eight trainings).

experiment {
  question = "Which settings of RCTP-FT separate the two reward tokens most, at no loss of success under high?"
  expect   = "Failures spoilt from experts and rows that start from the mean give the widest gap"
  seeds    = [101, 102]
}

module "base" { source = "drills_base.hcl" }

locals {
  base   = module.base.stage
  drills = local.base.tasks.drills
  rows   = { copy = "copy:<|assistant|>", mean = "mean" }
}

defaults { limits = { steps = 4, reply = 60, context = 384 } }
defaults "eval" { tasks = [local.drills.test] }

stage "curate" "data" { # failures: as many as experts, half or all of them spoilt from experts
  for_each = [0.5, 1]
  tasks    = local.drills.train
  failures = [local.base.rollout.explore.trajectories]
  ratio    = 1
  spoilt   = each.value
}

stage "rctp-ft" "warm" {
  for_each  = matrix({ spoilt = ["0.5", "1"], rows = ["copy", "mean"], epochs = [4, 8] })
  policy    = local.base.sft.base.checkpoint
  data      = [stage.curate.data[each.value.spoilt].mixed]
  epochs    = each.value.epochs
  lr        = 1e-3
  tokens    = { position = "before_each_action", init = local.rows[each.value.rows] }
  schedule  = { shape = "linear", warmup = 0, final = 0.1 }
  optimizer = { beta2 = 0.98 }
}

stage "eval" "high" {
  for_each = stage.rctp-ft.warm
  policy   = each.value
}
stage "eval" "low" {
  for_each = stage.rctp-ft.warm
  policy   = each.value
  token    = "low"
}
stage "eval" "sampled" { # as in the rollouts of RL
  for_each    = stage.rctp-ft.warm
  policy      = each.value
  temperature = 1
}
stage "eval" "sampled_low" {
  for_each    = stage.rctp-ft.warm
  policy      = each.value
  temperature = 1
  token       = "low"
}

stage "report" "page" {
  scores = [stage.eval.high, stage.eval.low, stage.eval.sampled, stage.eval.sampled_low]
  curves = [stage.rctp-ft.warm]
  data   = concat([local.drills.train, local.drills.test], [for d in stage.curate.data : d.mixed])
}
