# The paper's table on Llama-3.1-8B-Instruct: base model and four arms, with the paper's settings literally. The failures
# that RCTP-FT learns from were sampled from Qwen2.5-7B-Instruct, as the paper says; for Llama they are off-policy.
#
#   rcgrpo plan experiments/paper_llama.hcl -var base=/models/Llama-3.1-8B-Instruct -var explorer=/models/Qwen2.5-7B-Instruct
#
# Cost: as paper_qwen.hcl, times 1.1 (8.0 against 7.6 B parameters). The rollouts of Qwen are shared with paper_qwen.hcl
# when both use one store.

experiment {
  question = "Does RCTP-FT followed by RC-GRPO raise multi-turn success of Llama-3.1-8B-Instruct as the paper reports?"
  expect   = "RCTP-FT + RC-GRPO 48.75 %, RCTP-FT + GRPO 46.25 %, SFT + GRPO 35.00 %, SFT + RC-GRPO 35.00 %, base 0 % of 80 tasks (the paper, one run each)"
  seeds    = [1, 2, 3]
}

variable "base" {
  type        = string
  description = "folder of Llama-3.1-8B-Instruct, as the hub has it"
}

variable "explorer" {
  type        = string
  description = "folder of Qwen2.5-7B-Instruct, whose failures the mixed data set takes"
}

variable "gpus" {
  type        = number
  default     = 8
  description = "GPUs of a training or evaluation stage (the paper: 8 H200)"
}

variable "updates" {
  type        = number
  default     = 350
  description = "optimizer updates of each RL arm (the paper logs 350)"
}

variable "batches" {
  type        = object({ grpo = number, rc = number })
  default     = { grpo = 64, rc = 256 }
  description = "tasks per update (paper: 64 for GRPO, 256 for RC-GRPO)"
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
  description = "longest episode in tokens (the paper gives none)"
}

locals {
  inits = {
    sft  = stage.sft.warm.checkpoint
    rctp = stage.rctp-ft.warm.checkpoint
  }
}

stage "model" "base" {
  path = dir(var.base)
}

stage "model" "explorer" {
  path = dir(var.explorer)
}

# --- Data: 720 training tasks, 80 test tasks as the paper drew them ------------------------------------------------------

stage "tasks" "bfcl" {
  source = "bfcl"
  take   = var.take
  split {
    by = "paper"
  }
}

stage "rollout" "explore" { # where failures come from
  policy = stage.model.explorer.checkpoint
  tasks  = stage.tasks.bfcl.train
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

# --- Stage 1 -----------------------------------------------------------------------------------------------------------------

stage "sft" "warm" {
  policy = stage.model.base.checkpoint
  data   = [stage.curate.data.expert]
  epochs = 2
  batch  = 16
  lr     = 1e-5
  resources {
    gpus = var.gpus
  }
}

stage "rctp-ft" "warm" {
  policy = stage.model.base.checkpoint
  data   = [stage.curate.data.mixed]
  epochs = 5
  batch  = 16
  lr     = 1e-5
  tokens {
    position = "first_user"
    init     = "mean"
  }
  resources {
    gpus = var.gpus
  }
}

# --- Stage 2 -----------------------------------------------------------------------------------------------------------------

stage "grpo" "arm" {
  for_each = local.inits
  policy   = each.value
  tasks    = [stage.tasks.bfcl.train]
  updates  = var.updates
  group    = 5
  batch    = var.batches.grpo
  lr       = 1e-6
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
  for_each = local.inits
  policy   = each.value
  tasks    = [stage.tasks.bfcl.train]
  updates  = var.updates
  group    = 5
  batch    = var.batches.rc
  lr       = 1e-6
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

# --- What came out -----------------------------------------------------------------------------------------------------------

stage "eval" "arm" {
  for_each = {
    "Base"              = stage.model.base.checkpoint
    "SFT + GRPO"        = stage.grpo.arm["sft"].checkpoint
    "SFT + RC-GRPO"     = stage.rc-grpo.arm["sft"].checkpoint
    "RCTP-FT + GRPO"    = stage.grpo.arm["rctp"].checkpoint
    "RCTP-FT + RC-GRPO" = stage.rc-grpo.arm["rctp"].checkpoint
  }
  policy = each.value
  tasks  = [stage.tasks.bfcl.test]
  limits {
    reply   = var.reply
    context = var.context
  }
  resources {
    gpus = var.gpus
  }
}

stage "report" "page" {
  scores      = [stage.eval.arm]
  transcripts = [stage.eval.arm]
  arms        = ["Base", "SFT + GRPO", "SFT + RC-GRPO", "RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"]
  curves      = [stage.grpo.arm, stage.rc-grpo.arm, stage.sft.warm, stage.rctp-ft.warm]
  data        = [stage.tasks.bfcl.train, stage.tasks.bfcl.test, stage.curate.data.mixed]
  notes = [
    "The failures are rollouts of Qwen2.5-7B-Instruct, as in the paper: off-policy for Llama.",
    "The paper's batch of 256 for RC-GRPO and 64 for GRPO is read as tasks per update; equal_compute.hcl has the arms with equal batches.",
    "The split is the paper's draw of 80 of 800 samples: nearly every test task has a sibling in training. splits.hcl compares it with a split by family.",
    "The token stands in the first user message (the paper's appendix); its section 3.1 puts it before each action.",
    "The paper reports one run of each arm; here are three seeds.",
    "Open in the paper and set here: KL k3 per token and token mean, constant learning rate, weight decay 0.01, clipping at norm 1, replies of at most 1,024 and episodes of at most 16,384 tokens.",
  ]
  compare "reward conditioning" {
    pairs = [["RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"], ["SFT + GRPO", "SFT + RC-GRPO"]]
  }
  compare "initialisation" {
    pairs = [["SFT + RC-GRPO", "RCTP-FT + RC-GRPO"], ["SFT + GRPO", "RCTP-FT + GRPO"]]
  }
}
