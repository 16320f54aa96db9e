# Is the effect only randomness? A reward token spreads the rollouts of a group, and so does a
# higher temperature. Plain GRPO runs at several temperatures and RC-GRPO at 1, from one RCTP-FT
# policy. The page's table of metrics has the entropy of each arm's rollouts, so RC-GRPO can be
# compared with the GRPO arm of equal entropy.
#
# The base and its data are the stages of drills.hcl, and their results in the same store are
# reused.
# Cost: about ten minutes on two cores beside the stages of drills.hcl (three seeds, five arms of
# 100 updates).

experiment {
  question = "Does GRPO at a temperature that gives as much entropy do what RC-GRPO does?"
  expect   = "Temperature also keeps groups from being equal, by adding failures; RC-GRPO keeps more success at equal entropy (the paper's reading)"
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
  groups       = 12 # tasks per update
  temperatures = { "GRPO, T = 0.8" = 0.8, "GRPO, T = 1" = 1, "GRPO, T = 1.2" = 1.2, "GRPO, T = 1.5" = 1.5 }
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

# --- The arms

stage "grpo" "arm" {
  for_each    = local.temperatures
  policy      = stage.rctp-ft.warm.checkpoint
  tasks       = stage.tasks.fresh.train
  updates     = var.updates
  batch       = local.groups
  lr          = var.rl_lr
  temperature = each.value
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
  policy  = stage.rctp-ft.warm.checkpoint
  tasks   = stage.tasks.fresh.train
  updates = var.updates
  batch   = local.groups
  lr      = var.rl_lr
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
    { for name, _ in local.temperatures : name => stage.grpo.arm[name].checkpoint },
    { "RC-GRPO" = stage.rc-grpo.arm.checkpoint, "RCTP-FT" = stage.rctp-ft.warm.checkpoint },
  )
  policy = each.value
  tasks  = [stage.tasks.drills.test, stage.tasks.drills.test_new]
  limits {
    steps   = 4
    reply   = 60
    context = 384
  }
}

stage "report" "page" {
  scores = [stage.eval.arm]
  arms   = concat(keys(local.temperatures), ["RC-GRPO", "RCTP-FT"])
  curves = [stage.grpo.arm, stage.rc-grpo.arm]
  data   = [stage.tasks.drills.train, stage.tasks.drills.test, stage.tasks.drills.test_new, stage.curate.data.mixed]
  notes  = ["GRPO arms condition on high, as from an RCTP-FT policy; entropies are those of the rollouts at each arm's own temperature."]
  windows {
    early = 20
    late  = 20
  }
  compare "token against temperature" {
    pairs = [
      ["GRPO, T = 1", "RC-GRPO"], ["GRPO, T = 0.8", "RC-GRPO"], ["GRPO, T = 1.2", "RC-GRPO"], ["GRPO, T = 1.5", "RC-GRPO"],
    ]
  }
}
