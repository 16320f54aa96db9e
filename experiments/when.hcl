# When does reward conditioning help? GRPO and RC-GRPO start from the same policies, which differ in how peaked they
# are (passes of fine-tuning) and in how far the reward tokens separate (gap). Where the gap is wide, three changes try
# to keep it alive during RL. The predictions follow from Propositions 1 and 2 and were committed before the first run:
#   1. Groups without variance: RC-GRPO has fewer than GRPO where the gap is narrow or wide, and most so where it is
#      wide (Proposition 2 adds p(1-p)·gap² to the variance of a group). Without a gap there is no difference.
#   2. Groups without variance under GRPO are more frequent from 8 passes than from 2 (Proposition 1).
#   3. Sampled success, the primary outcome: RC-GRPO is above GRPO from the peaked policy with a wide gap; without a
#      gap there is no difference. The other cells lie between.
#   4. The gap and the advantage last longer with a stronger KL term, more high tokens, or no gradient from low
#      rollouts.
# Screening with seed 11 chose nothing but the number of seeds; the result is from seeds 12 and above.
# Cost: about four hours on two cores (five seeds, 24 RL trainings of 100 updates each).

experiment {
  question = "When does reward conditioning raise success: for which gap between the tokens, from how peaked a policy?"
  expect = join(" ", ["Fewer groups without variance where the tokens differ, and higher sampled success from a peaked",
  "policy with a wide gap; no effect without a gap (Propositions 1 and 2)"])
  seeds = var.seeds
}

variable "seeds" {
  type    = list(number)
  default = [12, 13, 14, 15, 16]
}
variable "updates" { default = 100 } # optimizer updates of each RL arm

module "base" {
  source   = "drills_base.hcl"
  rl_tasks = 12 * var.updates
}

locals {
  base   = module.base.stage
  drills = local.base.tasks.drills
  every  = "before_each_action"
  copy   = "copy:<|assistant|>"
  passes = { "2 passes" = 2, "8 passes" = 8 }
  gaps = { # where RCTP-FT puts the token, how the token's row starts, and the share of failures spoilt from experts
    "no gap"     = { spoilt = "0.5", tokens = { position = "first_user", init = local.copy } }
    "narrow gap" = { spoilt = "0.5", tokens = { position = local.every, init = local.copy } }
    "wide gap"   = { spoilt = "1", tokens = { position = local.every, init = "mean" } }
  }
  peaked = "wide gap/8 passes"
  wide   = ["wide gap/2 passes", local.peaked]
}

defaults { limits = { steps = 4, reply = 60, context = 384 } }
defaults "sft" "rctp-ft" {
  policy    = local.base.sft.base.checkpoint
  lr        = 1e-3
  schedule  = { shape = "linear", warmup = 0, final = 0.1 }
  optimizer = { beta2 = 0.98 }
}

stage "curate" "data" {
  for_each = [0.5, 1]
  tasks    = local.drills.train
  failures = [local.base.rollout.explore.trajectories]
  ratio    = 1
  spoilt   = each.value
}
stage "sft" "warm" { # twice the passes over half the data: as many updates as RCTP-FT
  for_each = local.passes
  data     = [stage.curate.data["0.5"].expert]
  epochs   = 2 * each.value
}
stage "rctp-ft" "warm" {
  for_each = matrix({ gap = keys(local.gaps), passes = keys(local.passes) })
  data     = [stage.curate.data[local.gaps[each.value.gap].spoilt].mixed]
  epochs   = local.passes[each.value.passes]
  tokens   = local.gaps[each.value.gap].tokens
}

defaults "grpo" "rc-grpo" {
  tasks     = local.base.tasks.fresh.train
  updates   = var.updates
  batch     = 12 # tasks per update
  lr        = 3e-4
  loss      = { aggregate = "trajectory_mean" }
  ratio     = { level = "token" }
  kl        = { beta = 0.1, estimator = "exact" }
  schedule  = { warmup = 5 }
  optimizer = { beta2 = 0.98, weight_decay = 0 }
}

stage "grpo" "arm" {
  for_each = { for cell, policy in stage.rctp-ft.warm : "GRPO, ${cell}" => policy }
  policy   = each.value
}
stage "rc-grpo" "arm" {
  for_each = { for cell, policy in stage.rctp-ft.warm : "RC-GRPO, ${cell}" => policy }
  policy   = each.value
}
stage "grpo" "sft" {
  for_each = { for passes, policy in stage.sft.warm : "SFT + GRPO, ${passes}" => policy }
  policy   = each.value
}
stage "rc-grpo" "sft" {
  for_each = { for passes, policy in stage.sft.warm : "SFT + RC-GRPO, ${passes}" => policy }
  policy   = each.value
  tokens   = { position = local.every, init = local.copy }
}

stage "grpo" "kl" { # changes that may keep a wide gap alive, each beside its own control
  for_each = { for cell in local.wide : "GRPO, ${cell}, β = 0.3" => stage.rctp-ft.warm[cell] }
  policy   = each.value
  kl       = { beta = 0.3 }
}
stage "rc-grpo" "kl" {
  for_each = { for cell in local.wide : "RC-GRPO, ${cell}, β = 0.3" => stage.rctp-ft.warm[cell] }
  policy   = each.value
  kl       = { beta = 0.3 }
}
stage "rc-grpo" "high" {
  for_each = { for cell in local.wide : "RC-GRPO, ${cell}, p = 0.8" => stage.rctp-ft.warm[cell] }
  policy   = each.value
  tokens   = { high = 0.8 }
}
stage "rc-grpo" "learn" {
  for_each = { for cell in local.wide : "RC-GRPO, ${cell}, learns from high" => stage.rctp-ft.warm[cell] }
  policy   = each.value
  tokens   = { learn = "high" }
}

stage "eval" "arm" { # at temperature 1: the policy that RL trains, two episodes per task
  for_each = merge(stage.grpo.arm, stage.grpo.sft, stage.grpo.kl,
  stage.rc-grpo.arm, stage.rc-grpo.sft, stage.rc-grpo.kl, stage.rc-grpo.high, stage.rc-grpo.learn)
  policy      = each.value
  tasks       = [local.drills.test]
  temperature = 1
  samples     = 2
}
stage "eval" "before" {
  for_each = merge({ for passes, policy in stage.sft.warm : "SFT, ${passes}" => policy },
  { for cell, policy in stage.rctp-ft.warm : "RCTP-FT, ${cell}" => policy })
  policy      = each.value
  tasks       = [local.drills.test]
  temperature = 1
}
stage "eval" "low" {
  for_each    = { for cell, policy in stage.rctp-ft.warm : "RCTP-FT, ${cell}" => policy }
  policy      = each.value
  tasks       = [local.drills.test]
  temperature = 1
  token       = "low"
}

stage "report" "page" {
  scores = [stage.eval.arm, stage.eval.before, stage.eval.low]
  curves = [stage.grpo.arm, stage.rc-grpo.arm, stage.grpo.sft, stage.rc-grpo.sft, stage.grpo.kl, stage.rc-grpo.kl,
  stage.rc-grpo.high, stage.rc-grpo.learn]
  data    = [local.drills.train, local.drills.test]
  windows = { early = 20, late = 80 } # late: all updates after the first window
  compare "reward conditioning" {     # the claims of expect
    without = stage.eval.arm["GRPO, ${local.peaked}"]
    with    = stage.eval.arm["RC-GRPO, ${local.peaked}"]
    outcome = "sampled"
    expect  = "higher"
  }
  compare "reward conditioning" {
    without = [for cell in local.wide : stage.eval.arm["GRPO, ${cell}"]]
    with    = [for cell in local.wide : stage.eval.arm["RC-GRPO, ${cell}"]]
    outcome = "zero_variance"
    expect  = "lower"
  }
  compare "reward conditioning" {
    without = [for cell in keys(stage.rctp-ft.warm) : stage.eval.arm["GRPO, ${cell}"] if cell != local.peaked]
    with    = [for cell in keys(stage.rctp-ft.warm) : stage.eval.arm["RC-GRPO, ${cell}"] if cell != local.peaked]
    outcome = "sampled"
  }
  compare "with a stronger KL term" {
    without = [for cell in local.wide : stage.eval.arm["GRPO, ${cell}, β = 0.3"]]
    with    = [for cell in local.wide : stage.eval.arm["RC-GRPO, ${cell}, β = 0.3"]]
    outcome = "sampled"
  }
  compare "with more high tokens" {
    without = [for cell in local.wide : stage.eval.arm["GRPO, ${cell}"]]
    with    = [for cell in local.wide : stage.eval.arm["RC-GRPO, ${cell}, p = 0.8"]]
    outcome = "sampled"
  }
  compare "without learning from low" {
    without = [for cell in local.wide : stage.eval.arm["GRPO, ${cell}"]]
    with    = [for cell in local.wide : stage.eval.arm["RC-GRPO, ${cell}, learns from high"]]
    outcome = "sampled"
  }
  compare "the paper's method" {
    without = [for n in keys(local.passes) : stage.eval.arm["SFT + GRPO, ${n}"]]
    with    = [for n in keys(local.passes) : stage.eval.arm["RC-GRPO, wide gap/${n}"]]
    outcome = "sampled"
  }
  map "Effect of reward conditioning on sampled success" { # the primary outcome over gap and peakedness
    compare = "reward conditioning"
    outcome = "sampled"
    x       = "token_gap"
    y       = "zero_variance"
  }
}
