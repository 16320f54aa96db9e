# Study B: which difference between the demo and the paper carries which part of the paper's table? A ladder from equal
# budgets to the paper's settings, one difference a rung; each rung keeps those before it.
#   0 equal updates of fine-tuning: 8 passes for SFT, 4 for RCTP-FT, which has twice the data
#   1 passes: 2 and 5
#   2 batch: 48 tasks per update for RC-GRPO, 12 for GRPO (the paper: 256 and 64)
#   3 unconditional: GRPO after RCTP-FT samples without a token, and is evaluated without one
#   4 position: the reward token ends the first user message
#   5 repeated: RL on 240 of the tasks of fine-tuning, each seen 2 times by GRPO and 8 times by RC-GRPO
# SFT + GRPO changes with rungs 1 and 5 only. The predictions in LOG.md were committed before the first training.
# Cost: 40 minutes on two busy cores with AVX-512 (three seeds, 39 RL trainings of 40 updates).

experiment {
  question = "Which difference between the demo and the paper makes the paper's method win?"
  expect = join(" ", ["RC-GRPO beats GRPO after RCTP-FT on the rungs where GRPO loses its token or has a quarter of",
  "the episodes, and on no earlier one"])
  seeds = var.seeds
}

variable "seeds" {
  type    = list(number)
  default = [1, 2, 3]
}
variable "updates" { default = 40 } # optimizer updates of each RL arm

module "base" {
  source   = "drills_base.hcl"
  rl_tasks = 48 * var.updates
  passes   = { sft = 2, rctp = 5 }
}

locals {
  base  = module.base.stage
  fresh = local.base.tasks.fresh.train
  warm = { # policies that RL starts from
    sft8  = stage.sft.equal.checkpoint
    sft2  = local.base.sft.warm.checkpoint
    rctp4 = stage.rctp-ft.warm["equal"].checkpoint
    rctp5 = local.base.rctp-ft.warm.checkpoint
    first = stage.rctp-ft.warm["first"].checkpoint
  }
  again = stage.tasks.repeated.train
  grpo = { # the policy, the tasks, and the token's share: null is the condition of the policy, 0 is none
    "SFT + GRPO, 0 equal"    = { policy = "sft8", tasks = local.fresh, high = null }
    "SFT + GRPO, 1 passes"   = { policy = "sft2", tasks = local.fresh, high = null }
    "SFT + GRPO, 5 repeated" = { policy = "sft2", tasks = local.again, high = null }
    "GRPO, 0 equal"          = { policy = "rctp4", tasks = local.fresh, high = null }
    "GRPO, 1 passes"         = { policy = "rctp5", tasks = local.fresh, high = null }
    "GRPO, 3 unconditional"  = { policy = "rctp5", tasks = local.fresh, high = 0 }
    "GRPO, 4 position"       = { policy = "first", tasks = local.fresh, high = 0 }
    "GRPO, 5 repeated"       = { policy = "first", tasks = local.again, high = 0 }
  }
  rc = {
    "RC-GRPO, 0 equal"    = { policy = "rctp4", tasks = local.fresh, batch = 12 }
    "RC-GRPO, 1 passes"   = { policy = "rctp5", tasks = local.fresh, batch = 12 }
    "RC-GRPO, 2 batch"    = { policy = "rctp5", tasks = local.fresh, batch = 48 }
    "RC-GRPO, 4 position" = { policy = "first", tasks = local.fresh, batch = 48 }
    "RC-GRPO, 5 repeated" = { policy = "first", tasks = local.again, batch = 48 }
  }
}

defaults { limits = { steps = 4, reply = 60, context = 384 } }
defaults "sft" "rctp-ft" {
  policy    = local.base.sft.base.checkpoint
  lr        = 1e-3
  schedule  = { shape = "linear", warmup = 0, final = 0.1 }
  optimizer = { beta2 = 0.98 }
}

stage "tasks" "repeated" { # the first 240 of the tasks of fine-tuning
  source = "drills"
  train  = 240
  test   = 0
}
stage "sft" "equal" {
  data   = [local.base.curate.data.expert]
  epochs = 8
}
stage "rctp-ft" "warm" {
  for_each = {
    equal = { epochs = 4, position = "before_each_action" }
    first = { epochs = 5, position = "first_user" }
  }
  data   = [local.base.curate.data.mixed]
  epochs = each.value.epochs
  tokens = { position = each.value.position }
}

defaults "grpo" "rc-grpo" {
  updates   = var.updates
  lr        = 3e-4
  loss      = { aggregate = "trajectory_mean" }
  ratio     = { level = "token" }
  kl        = { beta = 0.1, estimator = "exact" }
  schedule  = { warmup = 5 }
  optimizer = { beta2 = 0.98, weight_decay = 0 }
}
stage "grpo" "arm" {
  for_each = local.grpo
  policy   = local.warm[each.value.policy]
  tasks    = each.value.tasks
  batch    = 12
  tokens   = { high = each.value.high }
}
stage "rc-grpo" "arm" {
  for_each = local.rc
  policy   = local.warm[each.value.policy]
  tasks    = each.value.tasks
  batch    = each.value.batch
}

defaults "eval" { # at temperature 1: the policy that RL trains
  tasks       = [local.base.tasks.drills.test]
  temperature = 1
}
stage "eval" "grpo" {
  for_each = stage.grpo.arm
  policy   = each.value.checkpoint
  token    = local.grpo[each.key].high == 0 ? "none" : "checkpoint"
}
stage "eval" "rc" {
  for_each = stage.rc-grpo.arm
  policy   = each.value.checkpoint
}
stage "eval" "before" {
  for_each = {
    "SFT, 8 passes"          = local.warm.sft8
    "SFT, 2 passes"          = local.warm.sft2
    "RCTP-FT, 4 passes"      = local.warm.rctp4
    "RCTP-FT, 5 passes"      = local.warm.rctp5
    "RCTP-FT, first message" = local.warm.first
  }
  policy = each.value
}
stage "eval" "low" {
  for_each = { "RCTP-FT, 4 passes" = local.warm.rctp4, "RCTP-FT, 5 passes" = local.warm.rctp5,
  "RCTP-FT, first message" = local.warm.first }
  policy = each.value
  token  = "low"
}

stage "report" "page" {
  scores  = [stage.eval.grpo, stage.eval.rc, stage.eval.before, stage.eval.low]
  curves  = [stage.grpo.arm, stage.rc-grpo.arm]
  data    = [local.base.tasks.drills.train, local.base.tasks.drills.test]
  windows = { early = 20, late = 20 }
  compare "reward conditioning" { # rungs 3 to 5: the claim of expect
    without = [for rung in ["3 unconditional", "4 position", "5 repeated"] : stage.eval.grpo["GRPO, ${rung}"]]
    with    = [for rung in ["2 batch", "4 position", "5 repeated"] : stage.eval.rc["RC-GRPO, ${rung}"]]
    outcome = "sampled"
    expect  = "higher"
  }
  compare "reward conditioning" { # rungs 0 and 1
    without = [for rung in ["0 equal", "1 passes"] : stage.eval.grpo["GRPO, ${rung}"]]
    with    = [for rung in ["0 equal", "1 passes"] : stage.eval.rc["RC-GRPO, ${rung}"]]
    outcome = "sampled"
  }
  compare "reward conditioning with four times the tasks per update" {
    without = stage.eval.grpo["GRPO, 1 passes"]
    with    = stage.eval.rc["RC-GRPO, 2 batch"]
    outcome = "sampled"
  }
  compare "the paper's method" { # rungs 0 and 5
    without = [for rung in ["0 equal", "5 repeated"] : stage.eval.grpo["SFT + GRPO, ${rung}"]]
    with    = [for rung in ["0 equal", "5 repeated"] : stage.eval.rc["RC-GRPO, ${rung}"]]
    outcome = "sampled"
  }
  compare "the paper's method" { # rungs 1 to 4
    without = stage.eval.grpo["SFT + GRPO, 1 passes"]
    with    = [for rung in ["1 passes", "2 batch", "4 position"] : stage.eval.rc["RC-GRPO, ${rung}"]]
    outcome = "sampled"
  }
  compare "reward conditioning" {
    without = [for rung in ["0 equal", "1 passes", "3 unconditional", "4 position", "5 repeated"] :
    stage.eval.grpo["GRPO, ${rung}"]]
    with = [for rung in ["0 equal", "1 passes", "2 batch", "4 position", "5 repeated"] :
    stage.eval.rc["RC-GRPO, ${rung}"]]
    outcome = "zero_variance"
  }
}
