# Study C: the four arms on a real model. SmolLM2-135M-Instruct, imported from its GGUF file, learns single-turn drills
# over the file system, tickets and messages of the benchmark; tools stand in the system prompt as signatures. SFT makes
# 2 passes over experts, RCTP-FT 5 over experts and spoilt ones, as in the paper; RL has 20 updates of 4 × 5 episodes.
# It is smaller than first planned (400 drills with several turns, 800 for RCTP-FT): that takes a day on two busy cores.
# Predictions are in LOG.md and were committed before the first stage. One seed: it shows the mechanism, not a score.
# Cost: about an hour on two cores with AVX-512. Site: the benchmark's data, as for smollm2_first.hcl.

experiment {
  question = "Does a pretrained model show what the theory predicts: a gap, more mixed groups, and the sign of E - 1?"
  expect = join(" ", ["A gap of 15 points after RCTP-FT, 10 points fewer groups without variance with RC-GRPO than",
  "with GRPO, and RC-GRPO minus GRPO with the sign of E - 1 (LOG.md)"])
  seeds = [1]
}

variable "model" { default = "../.deps/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" } # or a Hugging Face folder
variable "drills" { default = 48 }                                                # of fine-tuning
variable "updates" { default = 20 }                                               # of each RL arm

locals {
  inits = { "SFT" = stage.sft.warm, "RCTP-FT" = stage.rctp-ft.warm }
  arms = merge({ for init in keys(local.inits) : "${init} + GRPO" => stage.grpo.arm[init] },
  { for init in keys(local.inits) : "${init} + RC-GRPO" => stage.rc-grpo.arm[init] })
}

defaults { limits = { steps = 3, reply = 48, context = 512 } }
defaults "tasks" {
  source = "drills"
  form   = "single"
}
defaults "sft" "rctp-ft" {
  policy      = stage.model.smollm2.checkpoint
  batch       = 4
  lr          = 3e-4
  micro_batch = 1024
  schedule    = { shape = "linear", warmup = 0.1, final = 0.1 }
  optimizer   = { beta2 = 0.98 }
}

stage "model" "smollm2" {
  path   = strcontains(var.model, ".gguf") ? file(var.model) : dir(var.model)
  layout = "signatures"
}
stage "tasks" "drills" {
  train = var.drills
}
stage "tasks" "fresh" { # for RL: each is seen once
  train = 4 * var.updates
  skip  = var.drills
}
stage "tasks" "test" {
  train = 48
  skip  = var.drills + 4 * var.updates
}
stage "curate" "data" {
  tasks  = stage.tasks.drills.train
  ratio  = 1
  spoilt = 1
}
stage "sft" "warm" {
  data   = [stage.curate.data.expert]
  epochs = 2
}
stage "rctp-ft" "warm" {
  data   = [stage.curate.data.mixed]
  epochs = 5
  tokens = { position = "before_each_action" }
}

defaults "grpo" "rc-grpo" {
  tasks       = stage.tasks.fresh.train
  updates     = var.updates
  batch       = 4
  lr          = 1e-5
  micro_batch = 1024
  loss        = { aggregate = "trajectory_mean" }
  ratio       = { level = "token" }
  kl          = { beta = 0.1, estimator = "exact" }
  schedule    = { warmup = 2 }
  optimizer   = { beta2 = 0.98, weight_decay = 0 }
}
stage "grpo" "arm" {
  for_each = local.inits
  policy   = each.value.checkpoint
}
stage "rc-grpo" "arm" {
  for_each = local.inits
  policy   = each.value.checkpoint
  tokens   = { position = "before_each_action" }
  forecast = { tasks = 24, samples = 6 }
}

defaults "eval" {
  tasks       = [stage.tasks.test.train]
  temperature = 1
  samples     = 2
}
stage "eval" "arm" {
  for_each = local.arms
  policy   = each.value.checkpoint
}
stage "eval" "before" {
  for_each = merge({ for init, policy in local.inits : init => policy.checkpoint },
  { "As it comes" = stage.model.smollm2.checkpoint })
  policy = each.value
}
stage "eval" "low" { # the same policies under the low token
  for_each = { "RCTP-FT" = stage.rctp-ft.warm, "RCTP-FT + RC-GRPO" = stage.rc-grpo.arm["RCTP-FT"] }
  policy   = each.value.checkpoint
  token    = "low"
}

stage "report" "page" {
  scores      = [stage.eval.arm, stage.eval.before, stage.eval.low]
  transcripts = [stage.eval.arm, stage.eval.before]
  curves      = [stage.grpo.arm, stage.rc-grpo.arm, stage.sft.warm, stage.rctp-ft.warm]
  data        = [stage.tasks.drills.train, stage.tasks.test.train, stage.curate.data.mixed]
  windows     = { early = 10, late = 10 }
  compare "reward conditioning" {
    without = [for init in ["RCTP-FT", "SFT"] : stage.eval.arm["${init} + GRPO"]]
    with    = [for init in ["RCTP-FT", "SFT"] : stage.eval.arm["${init} + RC-GRPO"]]
    outcome = "sampled"
  }
  compare "reward conditioning" {
    without = stage.eval.arm["RCTP-FT + GRPO"]
    with    = stage.eval.arm["RCTP-FT + RC-GRPO"]
    outcome = "zero_variance"
    expect  = "lower"
  }
  compare "the paper's method" {
    without = stage.eval.arm["SFT + GRPO"]
    with    = stage.eval.arm["RCTP-FT + RC-GRPO"]
    outcome = "sampled"
  }
  compare "RL" {
    without = stage.eval.before["RCTP-FT"]
    with    = [for rl in ["RC-GRPO", "GRPO"] : stage.eval.arm["RCTP-FT + ${rl}"]]
    outcome = "sampled"
  }
}
