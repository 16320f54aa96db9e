# Control arms of equal compute. In the paper RC-GRPO has four times GRPO's batch, and RCTP-FT five
# times SFT's updates: does the gain come from the method or from the compute? Every arm of
# paper_qwen.hcl runs with both batches, and SFT also with the number of updates of RCTP-FT.
#
#   rcgrpo plan experiments/equal_compute.hcl --var base=/models/Qwen2.5-7B-Instruct
#
# Cost: twelve RL runs per seed, six of each batch. Stages shared with paper_qwen.hcl are reused
# from the same store.
#
# Stages on several GPUs do not work yet, so each requests one (`gpus`), and the file cannot run at
# the paper's size. Memory is that of paper_qwen.hcl: an RL arm takes 200.5 GiB and an H200 has 139
# GiB; Qwen2.5-3B-Instruct fits (95.1 GiB).

experiment {
  question = "What is left of the differences between the arms when batch and number of updates are equal?"
  expect   = "Nothing is known: the paper reports no such control. A larger batch alone raises the spread that it prints"
  seeds    = [1, 2, 3]
}

variable "base" {
  type        = string
  description = "folder of Qwen2.5-7B-Instruct, as the hub has it"
}

variable "gpus" {
  type        = number
  default     = 1
  description = "GPUs of a training or evaluation stage: 1, or 0 for the CPU; several do not work yet (the paper: 8 H200)"
}

variable "precision" {
  type        = string
  default     = "bf16"
  description = "numbers that go into products; weights, moments and sums are float32 (the paper says nothing)"
}

variable "updates" {
  type        = number
  default     = 350
  description = "optimizer updates of each RL arm (the paper logs 350)"
}

variable "batches" {
  type        = object({ small = number, large = number })
  default     = { small = 64, large = 256 }
  description = "tasks per update: the paper's 64 of GRPO and 256 of RC-GRPO, here both for both"
}

variable "take" {
  type        = number
  default     = 0
  description = "tasks kept of each set, for a try at small scale; 0 keeps all"
}

variable "reply" {
  type        = number
  default     = 1024
  description = "longest reply in tokens (the paper gives none)"
}

variable "context" {
  type        = number
  default     = 16384
  description = "longest episode, and longest trajectory of fine-tuning, in tokens (the paper gives none)"
}

locals {
  inits = {
    "SFT"                = stage.sft.warm["paper"].checkpoint
    "SFT, equal updates" = stage.sft.warm["equal"].checkpoint
    "RCTP-FT"            = stage.rctp-ft.warm.checkpoint
  }
  arms = merge([for name, init in local.inits : {
    "${name} (64)"  = { init = init, batch = var.batches.small }
    "${name} (256)" = { init = init, batch = var.batches.large }
  }]...)
}

stage "model" "base" {
  path = dir(var.base)
}

# --- Data: 720 training tasks, 80 test tasks by the paper's draw

stage "tasks" "bfcl" {
  source = "bfcl"
  take   = var.take
  prompt = "merged"
  split {
    by = "paper"
  }
}

stage "rollout" "explore" { # the source of failures
  policy    = stage.model.base.checkpoint
  tasks     = stage.tasks.bfcl.train
  samples   = 4 # 720 failures from 2,880 rollouts, if at most three quarters succeed or repeat
  precision = var.precision
  limits {
    reply   = var.reply
    context = var.context
  }
  resources {
    gpus = var.gpus
  }
}

stage "curate" "data" {
  tasks    = stage.tasks.bfcl.train
  failures = [stage.rollout.explore.trajectories]
  ratio    = 1
}

# --- Stage 1: 2 passes over 720 expert trajectories are 90 updates, 5 over 1,440 are 450

stage "sft" "warm" {
  for_each  = { paper = 2, equal = 10 }
  policy    = stage.model.base.checkpoint
  data      = [stage.curate.data.expert]
  epochs    = each.value
  batch     = 16
  lr        = 1e-5
  context   = var.context
  precision = var.precision
  recompute = true
  resources {
    gpus = var.gpus
  }
}

stage "rctp-ft" "warm" {
  policy    = stage.model.base.checkpoint
  data      = [stage.curate.data.mixed]
  epochs    = 5
  batch     = 16
  lr        = 1e-5
  context   = var.context
  precision = var.precision
  recompute = true
  tokens {
    position = "first_user"
    init     = "mean"
  }
  resources {
    gpus = var.gpus
  }
}

# --- Stage 2: every initial policy with both batches

stage "grpo" "arm" {
  for_each  = local.arms
  policy    = each.value.init
  tasks     = [stage.tasks.bfcl.train]
  updates   = var.updates
  group     = 5
  batch     = each.value.batch
  lr        = 1e-6
  precision = var.precision
  recompute = true
  clip {
    low  = 0.2
    high = 0.2
  }
  kl {
    beta = 0.1
  }
  limits {
    reply   = var.reply
    context = var.context
  }
  resources {
    gpus = var.gpus
  }
}

stage "rc-grpo" "arm" {
  for_each  = local.arms
  policy    = each.value.init
  tasks     = [stage.tasks.bfcl.train]
  updates   = var.updates
  group     = 5
  batch     = each.value.batch
  lr        = 1e-6
  precision = var.precision
  recompute = true
  clip {
    low  = 0.2
    high = 0.2
  }
  kl {
    beta = 0.1
  }
  tokens {
    high       = 0.5
    allocation = "iid"
    position   = "first_user"
  }
  limits {
    reply   = var.reply
    context = var.context
  }
  resources {
    gpus = var.gpus
  }
}

# --- Results

stage "eval" "arm" {
  for_each = merge(
    { for name, arm in local.arms : replace(name, " (", " + GRPO (") => stage.grpo.arm[name].checkpoint },
    { for name, arm in local.arms : replace(name, " (", " + RC-GRPO (") => stage.rc-grpo.arm[name].checkpoint },
  )
  policy    = each.value
  tasks     = [stage.tasks.bfcl.test]
  precision = var.precision
  limits {
    reply   = var.reply
    context = var.context
  }
  resources {
    gpus = var.gpus
  }
}

stage "report" "page" {
  scores = [stage.eval.arm]
  curves = [stage.grpo.arm, stage.rc-grpo.arm, stage.sft.warm, stage.rctp-ft.warm]
  data   = [stage.tasks.bfcl.train, stage.tasks.bfcl.test, stage.curate.data.mixed]
  notes = [
    "All requests of a task stand in one prompt that ends with the instruction to call done(), as in paper_qwen.hcl.",
    "The number in brackets is the batch in tasks per update. Equal updates: SFT makes ten passes over 720 trajectories, as many updates as RCTP-FT's five over 1,440.",
    "The spread of a batch grows with the number of its groups; arms with different batches cannot be compared by it.",
  ]
  compare "reward conditioning at equal batch" {
    pairs = [
      ["RCTP-FT + GRPO (64)", "RCTP-FT + RC-GRPO (64)"], ["RCTP-FT + GRPO (256)", "RCTP-FT + RC-GRPO (256)"],
      ["SFT + GRPO (64)", "SFT + RC-GRPO (64)"], ["SFT + GRPO (256)", "SFT + RC-GRPO (256)"],
    ]
  }
  compare "initialisation at equal updates" {
    pairs = [
      ["SFT, equal updates + GRPO (64)", "RCTP-FT + GRPO (64)"], ["SFT, equal updates + RC-GRPO (256)", "RCTP-FT + RC-GRPO (256)"],
    ]
  }
  compare "batch" {
    pairs = [["RCTP-FT + GRPO (64)", "RCTP-FT + GRPO (256)"], ["RCTP-FT + RC-GRPO (64)", "RCTP-FT + RC-GRPO (256)"]]
  }
}
