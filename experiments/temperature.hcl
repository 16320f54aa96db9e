# Is the effect only randomness? A reward token spreads the rollouts of a group, and so does a higher temperature.
# Plain GRPO runs at several temperatures and RC-GRPO at 1, from one RCTP-FT policy. The page's table of metrics has
# the entropy of each arm's rollouts, so RC-GRPO can be compared with the GRPO arm of equal entropy.
# Cost: about ten minutes on two cores beside the base of drills.hcl (three seeds, five arms of 100 updates).

experiment {
  question = "Does GRPO at a temperature that gives as much entropy do what RC-GRPO does?"
  expect = join(" ", ["Temperature also keeps groups from being equal, by adding failures;",
  "RC-GRPO keeps more success at equal entropy (the paper's reading)"])
  seeds = [1, 2, 3]
}

variable "updates" { default = 100 } # optimizer updates of each RL arm
variable "rl_lr" { default = 3e-4 }  # learning rate of the RL arms

module "drills" {
  source  = "drills.hcl"
  updates = var.updates
  rl_lr   = var.rl_lr
  passes  = { sft = 8, rctp = 4 }
}

locals {
  base   = module.drills.module.base.stage
  rc     = module.drills.stage.rc-grpo.arm["rctp"]
  drills = local.base.tasks.drills
}

defaults { limits = { steps = 4, reply = 60, context = 384 } }

stage "grpo" "arm" {
  for_each    = { for t in [0.8, 1, 1.2, 1.5] : "GRPO, T = ${t}" => t }
  temperature = each.value
  policy      = local.base.rctp-ft.warm
  tasks       = local.base.tasks.fresh.train
  updates     = var.updates
  batch       = 12 # tasks per update
  lr          = var.rl_lr
  loss        = { aggregate = "trajectory_mean" }
  ratio       = { level = "token" }
  kl          = { beta = 0.1, estimator = "exact" }
  schedule    = { warmup = 5 }
  optimizer   = { beta2 = 0.98, weight_decay = 0 }
}

stage "eval" "arm" {
  for_each = merge(stage.grpo.arm, { "RC-GRPO" = local.rc, "RCTP-FT" = local.base.rctp-ft.warm })
  policy   = each.value
  tasks    = [local.drills.test, local.drills.test_new]
}

stage "report" "page" {
  scores = [stage.eval.arm]
  arms   = [for arm in concat(keys(stage.grpo.arm), ["RC-GRPO", "RCTP-FT"]) : stage.eval.arm[arm]]
  curves = [stage.grpo.arm, local.rc]
  data   = [local.drills.train, local.drills.test, local.drills.test_new, local.base.curate.data.mixed]
  notes = [join(" ", ["GRPO arms condition on high, as from an RCTP-FT policy;",
  "entropies are those of the rollouts at each arm's own temperature."])]
  windows = var.updates < 40 ? null : { early = 20, late = 20 }
  compare "token against temperature" { # the claims of expect
    without = [for t in [1, 0.8, 1.2, 1.5] : stage.eval.arm["GRPO, T = ${t}"]]
    with    = stage.eval.arm["RC-GRPO"]
    expect  = "higher"
    matters = 3
  }
  compare "temperature" {
    without = stage.eval.arm["GRPO, T = 1"]
    with    = stage.eval.arm["GRPO, T = 1.5"]
    outcome = "zero_variance"
    expect  = "lower"
  }
  compare "temperature" {
    without = stage.eval.arm["GRPO, T = 1"]
    with    = stage.eval.arm["GRPO, T = 1.5"]
    outcome = "reward"
    expect  = "lower"
  }
}
