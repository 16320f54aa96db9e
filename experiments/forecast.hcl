# Proposition 1: the success rates of single tasks predict the share of groups with equal rewards.
# Policies of growing peakedness (1 to 8 passes of fine-tuning) are sampled before any update. The
# forecast from that sample is compared with the share that the first update measures, for plain
# GRPO and for RC-GRPO.
#
# The base and its data are the stages of drills.hcl, and their results in the same store are
# reused.
# Cost: about six minutes on two cores beside the stages of drills.hcl (three seeds, eight arms of
# 5 updates).

experiment {
  question = "Does a small sampling run before training tell how many groups will be without variance?"
  expect   = "The measured share at update 1 lies inside the forecast's 95 % band; it grows with the passes of SFT, less so under reward tokens (Proposition 1)"
  seeds    = [1, 2, 3]
}

variable "updates" {
  type        = number
  default     = 5
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
  passes = { "1" = 1, "2" = 2, "4" = 4, "8" = 8 }
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
  train  = local.groups * max(var.updates, 20)
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

# --- Initial policies of growing peakedness

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
  for_each = local.passes
  policy   = stage.sft.base.checkpoint
  data     = [stage.curate.data.expert]
  epochs   = each.value
  lr       = 1e-3
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
  for_each = local.passes
  policy   = stage.sft.base.checkpoint
  data     = [stage.curate.data.mixed]
  epochs   = each.value
  lr       = 1e-3
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

# --- The arms: a forecast, and a few updates

stage "grpo" "arm" {
  for_each = local.passes
  policy   = stage.sft.warm[each.key].checkpoint
  tasks    = stage.tasks.fresh.train
  updates  = var.updates
  batch    = local.groups
  lr       = var.rl_lr
  forecast {
    tasks   = 60
    samples = 10
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

stage "rc-grpo" "arm" {
  for_each = local.passes
  policy   = stage.rctp-ft.warm[each.key].checkpoint
  tasks    = stage.tasks.fresh.train
  updates  = var.updates
  batch    = local.groups
  lr       = var.rl_lr
  forecast {
    tasks   = 60
    samples = 10
  }
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
  for_each = merge(
    { for n, _ in local.passes : "SFT × ${n}" => stage.sft.warm[n].checkpoint },
    { for n, _ in local.passes : "RCTP-FT × ${n}" => stage.rctp-ft.warm[n].checkpoint },
  )
  policy      = each.value
  tasks       = [stage.tasks.drills.test]
  temperature = 1
  samples     = 4
  k           = [1, 4]
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

stage "report" "page" {
  scores = [stage.eval.arm]
  curves = [stage.grpo.arm, stage.rc-grpo.arm]
  data   = [stage.tasks.drills.train, stage.tasks.drills.test, stage.curate.data.mixed]
  notes  = ["The forecast is in each training's metrics: share of groups without variance with its 95 % band, before update 1; beside it the share that update 1 measured."]
  windows {
    early = 1
    late  = 1
  }
}
