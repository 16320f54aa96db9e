# The draw of the reward token: independent per rollout (the paper, p = 0.5) or balanced within the
# group, with a share of high tokens from 0 to 1. With independent draws one group of five in
# sixteen has only one kind of token; p = 1 is plain GRPO conditioned on high.
#
# The base and its data are the stages of drills.hcl, and their results in the same store are
# reused.
# Cost: about twelve minutes on two cores beside the stages of drills.hcl (three seeds, six arms of
# 100 updates).

experiment {
  question = "Does it matter how reward tokens are drawn: independently or balanced within a group, and with which share of high?"
  expect   = "Balanced groups have a little more variance and the same success; shares far from one half lose the spread between tokens"
  seeds    = [1, 2, 3]
}

variable "updates" {
  type        = number
  default     = 100
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
  groups = 12 # tasks per update
  draws = {
    "iid, p = 0.5"        = { allocation = "iid", high = 0.5 }
    "stratified, p = 0.5" = { allocation = "stratified", high = 0.5 }
    "iid, p = 0"          = { allocation = "iid", high = 0 }
    "iid, p = 0.25"       = { allocation = "iid", high = 0.25 }
    "iid, p = 0.75"       = { allocation = "iid", high = 0.75 }
    "iid, p = 1"          = { allocation = "iid", high = 1 }
  }
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

# --- RCTP-FT, the initial policy of all arms

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

# --- The arms: one draw of tokens each

stage "rc-grpo" "arm" {
  for_each = local.draws
  policy   = stage.rctp-ft.warm.checkpoint
  tasks    = stage.tasks.fresh.train
  updates  = var.updates
  batch    = local.groups
  lr       = var.rl_lr
  tokens {
    allocation = each.value.allocation
    high       = each.value.high
    position   = "before_each_action"
    init       = "copy:<|assistant|>"
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

stage "eval" "high" {
  for_each = local.draws
  policy   = stage.rc-grpo.arm[each.key].checkpoint
  tasks    = [stage.tasks.drills.test, stage.tasks.drills.test_new]
  token    = "high"
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

stage "eval" "low" {
  for_each = local.draws
  policy   = stage.rc-grpo.arm[each.key].checkpoint
  tasks    = [stage.tasks.drills.test]
  token    = "low"
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

stage "report" "page" {
  scores = [stage.eval.high, stage.eval.low]
  arms   = keys(local.draws)
  curves = [stage.rc-grpo.arm]
  data   = [stage.tasks.drills.train, stage.tasks.drills.test, stage.tasks.drills.test_new, stage.curate.data.mixed]
  notes  = ["All arms start from one RCTP-FT policy of their seed and are evaluated on high, whatever they were trained on; low beside it shows what the token still does."]
  windows {
    early = 20
    late  = 20
  }
  compare "balanced groups" {
    pairs = [["iid, p = 0.5", "stratified, p = 0.5"]]
  }
  compare "balanced groups" {
    outcome = "sigma2"
    pairs   = [["iid, p = 0.5", "stratified, p = 0.5"]]
    expect  = "higher"
  }
  compare "share of high" {
    pairs = [
      ["iid, p = 0.5", "iid, p = 0"], ["iid, p = 0.5", "iid, p = 0.25"], ["iid, p = 0.5", "iid, p = 0.75"],
      ["iid, p = 0.5", "iid, p = 1"],
    ]
  }
}
