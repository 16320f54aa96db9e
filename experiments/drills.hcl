# The four arms of the paper on drills: small generated tasks over three of the benchmark's
# classes, and a model of 574,592 parameters that starts from random weights. `make demo` runs this
# file on two CPU cores.
#
# Cost: about ten minutes on two cores. Settings that depart from the paper's are explicit, and the
# page lists them: the token's position, the loss (mean over a trajectory's tokens), the KL
# (exact), rates, sizes and schedules.

experiment {
  question = "Do reward tokens keep GRPO groups informative once the policy is peaked, and does that raise success?"
  expect   = "RCTP-FT + RC-GRPO above the other arms, with the fewest zero-variance groups (the paper's claim)"
  seeds    = [1, 2, 3]
}

variable "updates" {
  type        = number
  default     = 150
  description = "optimizer updates of each RL arm"
  validation {
    condition = var.updates >= 1
    message   = "An arm needs at least one update."
  }
}

variable "rl_lr" {
  type        = number
  default     = 3e-4
  description = "learning rate of the RL arms"
}

locals {
  inits = {
    sft  = stage.sft.warm.checkpoint
    rctp = stage.rctp-ft.warm.checkpoint
  }
  groups = 12 # tasks per update
}

# --- Tasks

stage "tasks" "copy" { # 8,000 are too few to learn copying (see LOG.md)
  source = "drills"
  form   = "copy"
  train  = 16000
  seed   = 0
}

stage "tasks" "single" {
  source = "drills"
  form   = "single"
  train  = 12000
  seed   = 0
}

stage "tasks" "multi" {
  source = "drills"
  train  = 1500
  test   = 0
  seed   = 0
}

stage "tasks" "drills" { # per seed for fine-tuning; 500 + 500 held-out drills for all seeds
  source = "drills"
  train  = 1000
  test   = 500
  pool   = 500
}

stage "tasks" "fresh" { # for RL
  source = "drills"
  train  = local.groups * var.updates
  skip   = 1000 # those of fine-tuning
  test   = 0
}

# --- One base per seed: random weights that learn to copy, then to call

stage "model" "random" {
  corpus = [stage.curate.copy.expert, stage.curate.single.expert, stage.curate.multi.expert]
  vocab  = 1408
  architecture {
    family    = "qwen2"
    hidden    = 128
    layers    = 2
    heads     = 4
    kv_heads  = 2
    mlp       = 384
    rope_base = 1000
    context   = 512
  }
}

stage "curate" "copy" {
  tasks = stage.tasks.copy.train
}

stage "curate" "single" {
  tasks = stage.tasks.single.train
}

stage "curate" "multi" {
  tasks = stage.tasks.multi.train
}

stage "sft" "copy" {
  policy = stage.model.random.checkpoint
  data   = [stage.curate.copy.expert]
  epochs = 1
  batch  = 32
  lr     = 2e-3
  schedule {
    shape  = "constant"
    warmup = 20
  }
  optimizer {
    beta2 = 0.98
  }
}

stage "sft" "base" {
  policy = stage.sft.copy.checkpoint
  data   = [stage.curate.single.expert, stage.curate.multi.expert]
  epochs = 1
  batch  = 16
  lr     = 2e-3
  schedule {
    shape  = "linear"
    warmup = 0
    final  = 0.2
  }
  optimizer {
    beta2 = 0.98
  }
}

# --- The two initial policies

stage "rollout" "explore" {
  policy = stage.sft.base.checkpoint
  tasks  = stage.tasks.drills.train
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

stage "curate" "data" {
  tasks    = stage.tasks.drills.train
  failures = [stage.rollout.explore.trajectories]
  ratio    = 1
  spoilt   = 0.5
}

stage "sft" "warm" {
  policy = stage.sft.base.checkpoint
  data   = [stage.curate.data.expert]
  epochs = 4
  lr     = 1e-3
  schedule {
    shape  = "linear"
    warmup = 0
    final  = 0.1
  }
  optimizer {
    beta2 = 0.98
  }
}

stage "rctp-ft" "warm" {
  policy = stage.sft.base.checkpoint
  data   = [stage.curate.data.mixed]
  epochs = 4
  lr     = 1e-3
  tokens {
    position = "before_each_action"
    init     = "copy:<|assistant|>"
  }
  schedule {
    shape  = "linear"
    warmup = 0
    final  = 0.1
  }
  optimizer {
    beta2 = 0.98
  }
}

# --- One arm with the paper's profile: token in the first user message, product ratio, sampled KL

stage "rctp-ft" "paper" {
  seed   = 1
  policy = stage.sft.base.checkpoint
  data   = [stage.curate.data.mixed]
  epochs = 4
  lr     = 1e-3
  tokens {
    init = "copy:<|assistant|>"
  }
}

stage "rc-grpo" "paper" {
  seed    = 1
  policy  = stage.rctp-ft.paper.checkpoint
  tasks   = stage.tasks.fresh.train
  updates = min(var.updates, 50)
  batch   = local.groups
  lr      = var.rl_lr
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

# --- The four arms

stage "grpo" "arm" {
  for_each = local.inits
  policy   = each.value
  tasks    = stage.tasks.fresh.train
  updates  = var.updates
  batch    = local.groups
  lr       = var.rl_lr
  loss {
    aggregate = "trajectory_mean"
  }
  ratio {
    level = "token"
  }
  kl {
    beta      = 0.1
    estimator = "exact"
  }
  schedule {
    warmup = 5
  }
  optimizer {
    beta2        = 0.98
    weight_decay = 0
  }
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

stage "rc-grpo" "arm" {
  for_each = local.inits
  policy   = each.value
  tasks    = stage.tasks.fresh.train
  updates  = var.updates
  batch    = local.groups
  lr       = var.rl_lr
  tokens {
    high     = 0.5
    position = "before_each_action"
    init     = "copy:<|assistant|>"
  }
  loss {
    aggregate = "trajectory_mean"
  }
  ratio {
    level = "token"
  }
  kl {
    beta      = 0.1
    estimator = "exact"
  }
  schedule {
    warmup = 5
  }
  optimizer {
    beta2        = 0.98
    weight_decay = 0
  }
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

# --- Results

stage "eval" "arm" {
  for_each = {
    "SFT + GRPO"        = stage.grpo.arm["sft"].checkpoint
    "SFT + RC-GRPO"     = stage.rc-grpo.arm["sft"].checkpoint
    "RCTP-FT + GRPO"    = stage.grpo.arm["rctp"].checkpoint
    "RCTP-FT + RC-GRPO" = stage.rc-grpo.arm["rctp"].checkpoint
  }
  policy = each.value
  tasks  = [stage.tasks.drills.test, stage.tasks.drills.test_new]
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

stage "eval" "paper" { # trained with one seed, evaluated once
  seed     = 1
  for_each = { "RCTP-FT + RC-GRPO (paper profile)" = stage.rc-grpo.paper.checkpoint }
  policy   = each.value
  tasks    = [stage.tasks.drills.test, stage.tasks.drills.test_new]
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

stage "eval" "before" {
  for_each = {
    "Random weights" = stage.model.random.checkpoint
    "Base"           = stage.sft.base.checkpoint
    "SFT"            = stage.sft.warm.checkpoint
    "RCTP-FT"        = stage.rctp-ft.warm.checkpoint
  }
  policy = each.value
  tasks  = [stage.tasks.drills.test, stage.tasks.drills.test_new]
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

stage "eval" "low" { # the same policies conditioned on low: the gap is the effect of the token
  for_each = {
    "RCTP-FT"           = stage.rctp-ft.warm.checkpoint
    "SFT + RC-GRPO"     = stage.rc-grpo.arm["sft"].checkpoint
    "RCTP-FT + GRPO"    = stage.grpo.arm["rctp"].checkpoint
    "RCTP-FT + RC-GRPO" = stage.rc-grpo.arm["rctp"].checkpoint
  }
  policy = each.value
  tasks  = [stage.tasks.drills.test]
  token  = "low"
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

stage "eval" "sampled" { # at temperature 1, as in training: RL changes this before greedy decoding
  for_each = {
    "SFT"               = stage.sft.warm.checkpoint
    "RCTP-FT"           = stage.rctp-ft.warm.checkpoint
    "SFT + GRPO"        = stage.grpo.arm["sft"].checkpoint
    "SFT + RC-GRPO"     = stage.rc-grpo.arm["sft"].checkpoint
    "RCTP-FT + GRPO"    = stage.grpo.arm["rctp"].checkpoint
    "RCTP-FT + RC-GRPO" = stage.rc-grpo.arm["rctp"].checkpoint
  }
  policy      = each.value
  tasks       = [stage.tasks.drills.test]
  temperature = 1
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

stage "report" "page" {
  scores      = [stage.eval.arm, stage.eval.paper, stage.eval.before, stage.eval.low, stage.eval.sampled]
  transcripts = [stage.eval.arm]
  arms        = ["SFT + GRPO", "SFT + RC-GRPO", "RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"]
  curves      = [stage.grpo.arm, stage.rc-grpo.arm, stage.rc-grpo.paper, stage.sft.warm, stage.rctp-ft.warm]
  data        = [stage.tasks.drills.train, stage.tasks.drills.test, stage.tasks.drills.test_new, stage.curate.data.mixed]
  notes = [
    "A tiny model on generated tasks: 574,592 parameters from random weights, on drills over three of the benchmark's simulated classes. What holds here need not hold for models of 7 B parameters on the benchmark.",
    "Each seed has a base of its own (weights and order of the drills; the drills that bases learn from are the same), its own fine-tuning data, failures and rollouts. All seeds are tested on the same drills.",
    "The paper-profile arm has one seed and 50 updates, and the token where the paper's appendix puts it: in the first user message.",
  ]
  windows {
    early = 20
    late  = 20
  }
  compare "the paper's method" { # the claims of expect
    pairs = [
      ["SFT + GRPO", "RCTP-FT + RC-GRPO"], ["SFT + RC-GRPO", "RCTP-FT + RC-GRPO"], ["RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"],
    ]
    expect = "higher"
  }
  compare "the paper's method" {
    outcome = "zero_variance"
    pairs = [
      ["SFT + GRPO", "RCTP-FT + RC-GRPO"], ["SFT + RC-GRPO", "RCTP-FT + RC-GRPO"], ["RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"],
    ]
    expect = "lower"
  }
  compare "reward conditioning" {
    pairs = [["RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"], ["SFT + GRPO", "SFT + RC-GRPO"]]
  }
  compare "initialisation" {
    pairs = [["SFT + RC-GRPO", "RCTP-FT + RC-GRPO"], ["SFT + GRPO", "RCTP-FT + GRPO"]]
  }
  compare "RL" {
    outcome = "sampled"
    pairs = [
      ["RCTP-FT", "RCTP-FT + RC-GRPO"], ["RCTP-FT", "RCTP-FT + GRPO"], ["SFT", "SFT + RC-GRPO"], ["SFT", "SFT + GRPO"],
    ]
  }
}
