# The draw of the reward token: independent per rollout (the paper, p = 0.5) or balanced within the group, with a
# share of high tokens from 0 to 1. With independent draws one group of five in sixteen has only one kind of token;
# p = 1 is plain GRPO conditioned on high.
# Cost: about twelve minutes on two cores beside the base of drills.hcl (three seeds, six arms of 100 updates).

experiment {
  question = join(" ", ["Does it matter how reward tokens are drawn: independently or balanced within a group,",
  "and with which share of high?"])
  expect = join(" ", ["Balanced groups have a little more variance and the same success;",
  "shares far from one half lose the spread between tokens"])
  seeds = [1, 2, 3]
}

variable "updates" { default = 100 } # optimizer updates of each RL arm
variable "rl_lr" { default = 3e-4 }  # learning rate of the RL arms

module "base" {
  source   = "drills_base.hcl"
  rl_tasks = 12 * var.updates
  passes   = { sft = 8, rctp = 4 }
}

locals {
  base   = module.base.stage
  drills = local.base.tasks.drills
}

defaults { limits = { steps = 4, reply = 60, context = 384 } }

stage "rc-grpo" "arm" { # one draw of tokens each
  for_each = merge({ for p in [0, 0.25, 0.5, 0.75, 1] : "iid, p = ${p}" => { allocation = "iid", high = p } },
  { "stratified, p = 0.5" = { allocation = "stratified", high = 0.5 } })
  policy    = local.base.rctp-ft.warm
  tasks     = local.base.tasks.fresh.train
  updates   = var.updates
  batch     = 12 # tasks per update
  lr        = var.rl_lr
  tokens    = merge(each.value, { position = "before_each_action", init = "copy:<|assistant|>" })
  loss      = { aggregate = "trajectory_mean" }
  ratio     = { level = "token" }
  kl        = { beta = 0.1, estimator = "exact" }
  schedule  = { warmup = 5 }
  optimizer = { beta2 = 0.98, weight_decay = 0 }
}

stage "eval" "high" {
  for_each = stage.rc-grpo.arm
  policy   = each.value
  tasks    = [local.drills.test, local.drills.test_new]
  token    = "high"
}

stage "eval" "low" {
  for_each = stage.rc-grpo.arm
  policy   = each.value
  tasks    = [local.drills.test]
  token    = "low"
}

stage "report" "page" {
  scores = [stage.eval.high, stage.eval.low]
  arms   = stage.eval.high
  curves = [stage.rc-grpo.arm]
  data   = [local.drills.train, local.drills.test, local.drills.test_new, local.base.curate.data.mixed]
  notes = [join(" ", ["All arms start from one RCTP-FT policy of their seed and are evaluated on high,",
  "whatever they were trained on; low beside it shows what the token still does."])]
  windows = var.updates < 40 ? null : { early = 20, late = 20 }
  compare "balanced groups" { # expected: the same
    without = stage.eval.high["iid, p = 0.5"]
    with    = stage.eval.high["stratified, p = 0.5"]
    matters = 3
  }
  compare "balanced groups" {
    without = stage.eval.high["iid, p = 0.5"]
    with    = stage.eval.high["stratified, p = 0.5"]
    outcome = "sigma2"
    expect  = "higher"
  }
  compare "share far from one half" {
    without = stage.eval.high["iid, p = 0.5"]
    with    = [for p in [0.25, 0.75] : stage.eval.high["iid, p = ${p}"]]
    outcome = "token_gap"
    expect  = "lower"
  }
  compare "share of high" {
    without = stage.eval.high["iid, p = 0.5"]
    with    = [for p in [0, 0.25, 0.75, 1] : stage.eval.high["iid, p = ${p}"]]
  }
}
