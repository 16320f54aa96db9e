# Proposition 1: the success rates of single tasks predict the share of groups with equal rewards. Policies of growing
# peakedness (1 to 8 passes of fine-tuning) are sampled before any update. The forecast from that sample is compared
# with the share that the first update measures, for plain GRPO and for RC-GRPO.
# Cost: about six minutes on two cores beside the base of drills.hcl (three seeds, eight arms of 5 updates).

experiment {
  question = "Does a small sampling run before training tell how many groups will be without variance?"
  expect = join(" ", ["The measured share at update 1 lies inside the forecast's 95 % band;",
  "it grows with the passes of SFT, less so under reward tokens (Proposition 1)"])
  seeds = [1, 2, 3]
}

variable "updates" { default = 5 }  # optimizer updates of each RL arm
variable "rl_lr" { default = 3e-4 } # learning rate of the RL arms

module "base" {
  source   = "drills_base.hcl"
  rl_tasks = 12 * max(var.updates, 20)
}

locals {
  base   = module.base.stage
  drills = local.base.tasks.drills
}

defaults { limits = { steps = 4, reply = 60, context = 384 } }
defaults "sft" "rctp-ft" {
  policy    = local.base.sft.base
  lr        = 1e-3
  schedule  = { shape = "linear", warmup = 0, final = 0.1 }
  optimizer = { beta2 = 0.98 }
}

stage "sft" "warm" {
  for_each = [1, 2, 4, 8]
  data     = [local.base.curate.data.expert]
  epochs   = each.value
}

stage "rctp-ft" "warm" {
  for_each = [1, 2, 4, 8]
  data     = [local.base.curate.data.mixed]
  epochs   = each.value
  tokens   = { position = "before_each_action", init = "copy:<|assistant|>" }
}

defaults "grpo" "rc-grpo" {
  tasks     = local.base.tasks.fresh.train
  updates   = var.updates
  batch     = 12 # tasks per update
  lr        = var.rl_lr
  forecast  = { tasks = 60, samples = 10 }
  loss      = { aggregate = "trajectory_mean" }
  ratio     = { level = "token" }
  kl        = { beta = 0.1, estimator = "exact" }
  schedule  = { warmup = 5 }
  optimizer = { beta2 = 0.98, weight_decay = 0 }
}

stage "grpo" "arm" {
  for_each = stage.sft.warm
  policy   = each.value
}

stage "rc-grpo" "arm" {
  for_each = stage.rctp-ft.warm
  policy   = each.value
  tokens   = { high = 0.5, position = "before_each_action", init = "copy:<|assistant|>" }
}

stage "eval" "arm" {
  for_each = merge({ for n, policy in stage.sft.warm : "SFT × ${n}" => policy },
  { for n, policy in stage.rctp-ft.warm : "RCTP-FT × ${n}" => policy })
  policy      = each.value
  tasks       = [local.drills.test]
  temperature = 1
  samples     = 4
  k           = [1, 4]
}

stage "report" "page" {
  scores = [stage.eval.arm]
  curves = [stage.grpo.arm, stage.rc-grpo.arm]
  data   = [local.drills.train, local.drills.test, local.base.curate.data.mixed]
  notes = [join(" ", ["The forecast is in each training's metrics: share of groups without variance with its 95 %",
  "band, before update 1; beside it the share that update 1 measured."])]
  compare "passes of fine-tuning" { # the claims of expect; the band is in the table of the forecast
    without = [for init in ["SFT", "RCTP-FT"] : stage.eval.arm["${init} × 1"]]
    with    = [for init in ["SFT", "RCTP-FT"] : stage.eval.arm["${init} × 8"]]
    outcome = "forecast_zero_variance"
    expect  = "higher"
  }
  compare "reward tokens" { # after 8 passes of each
    without = stage.eval.arm["SFT × 8"]
    with    = stage.eval.arm["RCTP-FT × 8"]
    outcome = "forecast_zero_variance"
    expect  = "lower"
  }
}
