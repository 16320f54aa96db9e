# The four arms of the paper on drills: small generated tasks over three of the benchmark's classes, and a
# model of 574,592 parameters that starts from random weights (drills_base.hcl). `make demo` runs this file.
# Cost: 13 to 27 processor-minutes with AVX2, 7 to 14 minutes on two cores. Settings that depart from the paper's are
# explicit, and the page lists them: the token's position, the loss (mean over a trajectory's tokens), the KL (exact),
# rates, sizes and schedules.

experiment {
  question = "Do reward tokens keep GRPO's groups varied after fine-tuning, and is success higher with them?"
  expect   = "RCTP-FT + RC-GRPO above the other arms, with the fewest groups without variance (the paper's claim)"
  seeds    = [1, 2, 3]
}

variable "updates" { default = 100 }                  # optimizer updates of each RL arm
variable "rl_lr" { default = 3e-4 }                   # learning rate of the RL arms
variable "size" { default = "small" }                 # of the model and its data, see drills_base.hcl
variable "passes" { default = { sft = 2, rctp = 5 } } # of fine-tuning: the paper's

module "base" {
  source   = "drills_base.hcl"
  size     = var.size
  passes   = var.passes
  rl_tasks = local.groups * (var.size == "small" ? var.updates : 200) # then more updates resume from fewer
}

locals {
  groups = { small = 12, large = 16 }[var.size] # tasks per update
  base   = module.base.stage
  drills = local.base.tasks.drills
  inits  = { sft = local.base.sft.warm, rctp = local.base.rctp-ft.warm }
  warm   = { "SFT" = local.inits.sft, "RCTP-FT" = local.inits.rctp }
  arms = merge([for init, name in { sft = "SFT", rctp = "RCTP-FT" } : {
    "${name} + GRPO"    = stage.grpo.arm[init]
    "${name} + RC-GRPO" = stage.rc-grpo.arm[init]
  }]...)
  others = [for arm in ["SFT + GRPO", "SFT + RC-GRPO", "RCTP-FT + GRPO"] : stage.eval.arm[arm]]
  ours   = stage.eval.arm["RCTP-FT + RC-GRPO"]
}

defaults { limits = { steps = 4, reply = 60, context = 384 } }
defaults "eval" { tasks = [local.drills.test, local.drills.test_new] }
defaults "grpo" "rc-grpo" {
  tasks     = local.base.tasks.fresh.train
  updates   = var.updates
  batch     = local.groups
  lr        = var.rl_lr
  loss      = { aggregate = "trajectory_mean" }
  ratio     = { level = "token" }
  kl        = { beta = 0.1, estimator = "exact" }
  schedule  = { warmup = 5 }
  optimizer = { beta2 = 0.98, weight_decay = 0 }
}

stage "grpo" "arm" {
  for_each = local.inits
  policy   = each.value
}
stage "rc-grpo" "arm" {
  for_each = local.inits
  policy   = each.value
  tokens   = { high = 0.5, position = "before_each_action", init = "copy:<|assistant|>" }
}

stage "eval" "arm" {
  for_each = local.arms
  policy   = each.value
}
stage "eval" "before" {
  for_each = merge(local.warm, { "Random weights" = local.base.model.random, "Base" = local.base.sft.base })
  policy   = each.value
}
stage "eval" "low" { # the same policies conditioned on low: the gap is the effect of the token
  for_each = { for name, policy in merge(local.arms, local.warm) : name => policy if strcontains(name, "RC") }
  policy   = each.value
  tasks    = [local.drills.test]
  token    = "low"
}
stage "eval" "sampled" { # at temperature 1, as in training: RL changes this before greedy decoding
  for_each    = merge(local.arms, local.warm)
  policy      = each.value
  tasks       = [local.drills.test]
  temperature = 1
}

stage "report" "page" {
  scores      = [stage.eval.arm, stage.eval.before, stage.eval.low, stage.eval.sampled]
  transcripts = [stage.eval.arm]
  arms        = concat(local.others, [local.ours])
  curves      = [stage.grpo.arm, stage.rc-grpo.arm, local.base.sft.warm, local.base.rctp-ft.warm]
  data        = [local.drills.train, local.drills.test, local.drills.test_new, local.base.curate.data.mixed]
  notes = split("\n", replace(chomp(<<-EOT
    A tiny model on generated tasks: 574,592 parameters from random weights, on drills over three of the
      benchmark's simulated classes. What holds here need not hold for models of 7 B parameters on the benchmark.
    Each seed has a base of its own (weights and order of the drills; the drills that bases learn from are the
      same), its own fine-tuning data, failures and rollouts. All seeds are tested on the same drills.
  EOT
  ), "\n  ", " "))
  windows = var.updates < 40 ? null : { early = 20, late = 20 }
  compare "the paper's method" { # the claims of expect, in the order of the question
    without = local.others
    with    = local.ours
    outcome = "zero_variance"
    expect  = "lower"
    matters = 3
  }
  compare "the paper's method" {
    without = local.others
    with    = local.ours
    expect  = "higher"
    matters = 3
  }
  compare "reward conditioning" {
    without = [for init in ["RCTP-FT", "SFT"] : stage.eval.arm["${init} + GRPO"]]
    with    = [for init in ["RCTP-FT", "SFT"] : stage.eval.arm["${init} + RC-GRPO"]]
  }
  compare "initialisation" {
    without = [for rl in ["RC-GRPO", "GRPO"] : stage.eval.arm["SFT + ${rl}"]]
    with    = [for rl in ["RC-GRPO", "GRPO"] : stage.eval.arm["RCTP-FT + ${rl}"]]
  }
  compare "RL" {
    without = stage.eval.sampled["RCTP-FT"]
    with    = [for rl in ["RC-GRPO", "GRPO"] : stage.eval.sampled["RCTP-FT + ${rl}"]]
    outcome = "sampled"
  }
  compare "RL" {
    without = stage.eval.sampled["SFT"]
    with    = [for rl in ["RC-GRPO", "GRPO"] : stage.eval.sampled["SFT + ${rl}"]]
    outcome = "sampled"
  }
}
