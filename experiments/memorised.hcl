# Study A: does reward conditioning help where the policy has memorised the tasks of RL, as in the paper? RL takes the
# tasks of fine-tuning, of which the policy solves at least nine of ten under high. In the cell "mild" the failures of
# RCTP-FT are on 120 other tasks, so low solves about half; in the cell "wide" every task has a failure, so low solves
# one in twenty. Four ways to train: GRPO under high; GRPO that replaces groups without variance (DAPO), with fewer
# tasks per update, so that it samples about as many episodes; RC-GRPO; and RC-GRPO with a baseline for each token.
# docs/training.md 6 says when RC-GRPO helps. The predictions for these cells are in LOG.md and were committed before
# the first training of seeds 1 to 5; the recipes were chosen with seed 11 by the success before RL alone.
# Cost: 52 minutes on two busy cores with AVX-512 (five seeds, 40 RL trainings of 100 updates).

experiment {
  question = "Does RC-GRPO beat GRPO on memorised tasks, where low is uncertain (mild) and where it fails (wide)?"
  expect = join(" ", ["No: behind in the wide cell, where a baseline for each token is better than RC-GRPO's, and",
  "about equal in the mild cell (forecast of docs/training.md 6)"])
  seeds = var.seeds
}

variable "seeds" {
  type    = list(number)
  default = [1, 2, 3, 4, 5]
}
variable "updates" { default = 100 } # optimizer updates of each RL arm

module "base" {
  source = "drills_base.hcl"
}

locals {
  base = module.base.stage
  cells = { # data of RCTP-FT
    mild = [stage.curate.data.expert, stage.curate.others.mixed]
    wide = [stage.curate.data.mixed]
  }
}

defaults { limits = { steps = 4, reply = 60, context = 384 } }

stage "tasks" "memorised" { # of fine-tuning and of RL; held-out tasks differ in their pairs of intents
  source = "drills"
  train  = 240
  test   = 200
  pool   = 500
}
stage "tasks" "others" {
  source = "drills"
  train  = 120
  skip   = 240
  test   = 0
}
stage "curate" "data" {
  tasks  = stage.tasks.memorised.train
  spoilt = 1
}
stage "curate" "others" {
  tasks  = stage.tasks.others.train
  spoilt = 1
}
stage "rctp-ft" "warm" {
  for_each  = local.cells
  policy    = local.base.sft.base.checkpoint
  data      = each.value
  epochs    = 24
  lr        = 1e-3
  tokens    = { position = "before_each_action", init = "copy:<|assistant|>" }
  schedule  = { shape = "linear", warmup = 0, final = 0.1 }
  optimizer = { beta2 = 0.98 }
}

defaults "grpo" "rc-grpo" {
  tasks     = stage.tasks.memorised.train
  updates   = var.updates
  batch     = 12 # tasks per update: each task is seen five times in 100 updates
  lr        = 3e-4
  loss      = { aggregate = "trajectory_mean" }
  ratio     = { level = "token" }
  kl        = { beta = 0.1, estimator = "exact" }
  schedule  = { warmup = 5 }
  optimizer = { beta2 = 0.98, weight_decay = 0 }
  evaluate  = { tasks = [stage.tasks.memorised.test], every = 10, temperature = 1 }
}
stage "grpo" "arm" {
  for_each = { for cell, policy in stage.rctp-ft.warm : "GRPO, ${cell}" => policy }
  policy   = each.value
}
stage "grpo" "resample" {
  for_each      = { for cell, policy in stage.rctp-ft.warm : "GRPO resampled, ${cell}" => policy }
  policy        = each.value
  batch         = 5
  zero_variance = "resample"
}
stage "rc-grpo" "arm" {
  for_each = { for cell, policy in stage.rctp-ft.warm : "RC-GRPO, ${cell}" => policy }
  policy   = each.value
  forecast = { tasks = 80, samples = 10 }
}
stage "rc-grpo" "token" {
  for_each = { for cell, policy in stage.rctp-ft.warm : "RC-GRPO by token, ${cell}" => policy }
  policy   = each.value
  tokens   = { baseline = "token" }
  forecast = { tasks = 80, samples = 10 }
}

stage "eval" "arm" { # at temperature 1: the policy that RL trains, on held-out tasks and on those of RL
  for_each    = merge(stage.grpo.arm, stage.grpo.resample, stage.rc-grpo.arm, stage.rc-grpo.token)
  policy      = each.value.checkpoint
  tasks       = [stage.tasks.memorised.test, stage.tasks.memorised.train]
  temperature = 1
  samples     = 2
}
stage "eval" "before" {
  for_each    = { for cell, policy in stage.rctp-ft.warm : "RCTP-FT, ${cell}" => policy }
  policy      = each.value
  tasks       = [stage.tasks.memorised.test, stage.tasks.memorised.train]
  temperature = 1
  samples     = 2
}
stage "eval" "low" {
  for_each    = { for cell, policy in stage.rctp-ft.warm : "RCTP-FT, ${cell}" => policy }
  policy      = each.value
  tasks       = [stage.tasks.memorised.test, stage.tasks.memorised.train]
  temperature = 1
  samples     = 2
  token       = "low"
}

stage "report" "page" {
  scores  = [stage.eval.arm, stage.eval.before, stage.eval.low]
  curves  = [stage.grpo.arm, stage.grpo.resample, stage.rc-grpo.arm, stage.rc-grpo.token]
  data    = [stage.tasks.memorised.train, stage.tasks.memorised.test]
  windows = { early = 10, late = var.updates - 10 } # late: the mean over it is the area under the curve
  notes = [join(" ", ["The primary outcome is sampled success on held-out tasks, measured every ten updates: its mean",
  "over the late window is the area under its curve."])]
  compare "reward conditioning" {
    without = stage.eval.arm["GRPO, wide"]
    with    = stage.eval.arm["RC-GRPO, wide"]
    outcome = "eval_reward"
    expect  = "lower"
  }
  compare "the baseline by token" {
    without = stage.eval.arm["RC-GRPO, wide"]
    with    = stage.eval.arm["RC-GRPO by token, wide"]
    outcome = "eval_reward"
    expect  = "higher"
  }
  compare "reward conditioning" {
    without = stage.eval.arm["GRPO, mild"]
    with    = stage.eval.arm["RC-GRPO, mild"]
    outcome = "eval_reward"
  }
  compare "the baseline by token" {
    without = stage.eval.arm["RC-GRPO, mild"]
    with    = stage.eval.arm["RC-GRPO by token, mild"]
    outcome = "eval_reward"
  }
  compare "resampled groups" {
    without = [for cell in keys(local.cells) : stage.eval.arm["GRPO, ${cell}"]]
    with    = [for cell in keys(local.cells) : stage.eval.arm["GRPO resampled, ${cell}"]]
    outcome = "eval_reward"
  }
  compare "reward conditioning" {
    without = [for cell in keys(local.cells) : stage.eval.arm["GRPO, ${cell}"]]
    with    = [for cell in keys(local.cells) : stage.eval.arm["RC-GRPO, ${cell}"]]
    outcome = "sampled"
  }
  compare "reward conditioning and resampling" {
    without = [for cell in keys(local.cells) : stage.eval.arm["GRPO resampled, ${cell}"]]
    with    = [for cell in keys(local.cells) : stage.eval.arm["RC-GRPO, ${cell}"]]
    outcome = "sampled"
  }
}
