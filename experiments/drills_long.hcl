# The larger CPU recipe: the four arms of drills.hcl with a model of 1.45 million parameters, more data, longer
# reinforcement learning and five seeds. It repeats the questions that drills.hcl leaves open for lack of seeds.
# Cost: about two and a half hours on two cores, one with --var updates=40.

experiment {
  question = "Do reward tokens keep GRPO's groups varied after fine-tuning, and is success higher with them?"
  expect   = "RCTP-FT + RC-GRPO above the other arms, with the fewest groups without variance (the paper's claim)"
  seeds    = [1, 2, 3, 4, 5]
}

variable "updates" { default = 200 } # optimizer updates of each RL arm
variable "rl_lr" { default = 3e-4 }  # learning rate of the RL arms

module "drills" {
  source  = "drills.hcl"
  size    = "large"
  updates = var.updates
  rl_lr   = var.rl_lr
  passes  = { sft = 6, rctp = 3 }
}

locals {
  arms   = module.drills.stage
  base   = module.drills.module.base.stage
  drills = local.base.tasks.drills
  others = [for arm in ["SFT + GRPO", "SFT + RC-GRPO", "RCTP-FT + GRPO"] : local.arms.eval.arm[arm]]
  ours   = local.arms.eval.arm["RCTP-FT + RC-GRPO"]
}

stage "report" "page" {
  scores      = [local.arms.eval.arm, local.arms.eval.before, local.arms.eval.low, local.arms.eval.sampled]
  transcripts = [local.arms.eval.arm]
  arms        = concat(local.others, [local.ours])
  curves      = [local.arms.grpo.arm, local.arms.rc-grpo.arm, local.base.sft.warm, local.base.rctp-ft.warm]
  data        = [local.drills.train, local.drills.test, local.drills.test_new, local.base.curate.data.mixed]
  notes = split("\n", replace(chomp(<<-EOT
    A tiny model on generated tasks: 1.4 million parameters from random weights, on drills over three of the
      benchmark's simulated classes. What holds here need not hold for models of 7 B parameters on the benchmark.
    One base serves all seeds, so intervals over seeds say nothing about another base. Seeds change fine-tuning
      data, failures and rollouts; all are tested on the same drills.
  EOT
  ), "\n  ", " "))
  windows = var.updates < 40 ? null : { early = 20, late = 20 }
  compare "the paper's method" { # the claims of expect
    without = local.others
    with    = local.ours
    expect  = "higher"
    matters = 3
  }
  compare "the paper's method" {
    without = local.others
    with    = local.ours
    outcome = "zero_variance"
    expect  = "lower"
    matters = 3
  }
  compare "reward conditioning" {
    without = [for init in ["RCTP-FT", "SFT"] : local.arms.eval.arm["${init} + GRPO"]]
    with    = [for init in ["RCTP-FT", "SFT"] : local.arms.eval.arm["${init} + RC-GRPO"]]
  }
  compare "initialisation" {
    without = [for rl in ["RC-GRPO", "GRPO"] : local.arms.eval.arm["SFT + ${rl}"]]
    with    = [for rl in ["RC-GRPO", "GRPO"] : local.arms.eval.arm["RCTP-FT + ${rl}"]]
  }
  compare "RL" {
    without = local.arms.eval.sampled["RCTP-FT"]
    with    = [for rl in ["RC-GRPO", "GRPO"] : local.arms.eval.sampled["RCTP-FT + ${rl}"]]
    outcome = "sampled"
  }
  compare "RL" {
    without = local.arms.eval.sampled["SFT"]
    with    = [for rl in ["RC-GRPO", "GRPO"] : local.arms.eval.sampled["SFT + ${rl}"]]
    outcome = "sampled"
  }
}
