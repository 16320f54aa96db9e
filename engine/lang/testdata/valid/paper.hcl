experiment {
  question = "Do reward tokens keep groups informative once the policy is peaked?"
  expect   = "RCTP-FT + RC-GRPO above the other arms"
  seeds    = [1, 2, 3]
}

variable "updates" {
  type    = number
  default = 350
  validation {
    condition = var.updates >= 1
    message   = "At least one update."
  }
}

locals {
  inits = { sft = stage.sft.warm.checkpoint, rctp = stage.rctp-ft.warm.checkpoint }
}

stage "model" "base" {
  path = dir("folder")
}

stage "tasks" "bfcl" {
  source = "bfcl"
  split {
    by   = "family"
    test = 0.1
    seed = 42
  }
}

stage "rollout" "explore" {
  policy  = stage.model.base.checkpoint
  tasks   = stage.tasks.bfcl.train
  samples = 4
}

stage "curate" "data" {
  tasks    = stage.tasks.bfcl.train
  failures = stage.rollout.explore.trajectories
  ratio    = 1
}

stage "sft" "warm" {
  policy  = stage.model.base
  data    = stage.curate.data.expert
  epochs  = 2
  lr      = 1e-5
  limit   = "90m"
  names   = [for n in range(2) : "n${n}"]
  weights = { a = 1, b = var.updates > 100 ? 2 : 3 }
}

stage "rctp-ft" "warm" {
  policy = stage.model.base.checkpoint
  data   = stage.curate.data.mixed
  epochs = 5
  tokens {
    position = "first_user"
  }
}

stage "grpo" "arm" {
  for_each = local.inits
  policy   = each.value
  tasks    = stage.tasks.bfcl.train
  updates  = var.updates
  clip {
    low = 0.1
  }
  resources {
    gpus       = 8
    cpus       = 2
    memory     = "64GB"
    gpu_memory = "40GiB"
  }
  retry {
    attempts = 3
    on       = ["oom", "CUDA error 7.."]
    backoff  = "30s"
  }
  timeout     = "48h"
  description = "unconditioned"
}

stage "rc-grpo" "arm" {
  for_each = local.inits
  policy   = each.value
  tasks    = stage.tasks.bfcl.train
  updates  = var.updates
}

stage "eval" "arm" {
  for_each = {
    "Base"              = stage.model.base.checkpoint
    "SFT + GRPO"        = stage.grpo.arm["sft"].checkpoint
    "SFT + RC-GRPO"     = stage.rc-grpo.arm["sft"].checkpoint
    "RCTP-FT + GRPO"    = stage.grpo.arm["rctp"].checkpoint
    "RCTP-FT + RC-GRPO" = stage.rc-grpo.arm["rctp"].checkpoint
  }
  policy = each.value
  tasks  = stage.tasks.bfcl.test
}

stage "report" "paper" {
  scores = stage.eval.arm
  curves = [stage.grpo.arm, stage.rc-grpo.arm]
  compare "reward conditioning" {
    pairs = [["RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"], ["SFT + GRPO", "SFT + RC-GRPO"]]
  }
  compare "initialisation" {
    pairs = [["SFT + RC-GRPO", "RCTP-FT + RC-GRPO"]]
  }
}

stage "exec" "score" {
  command    = ["sh", "-c", "sort \"$src\" > \"$out\""]
  inputs     = { src = file("folder/raw.csv"), page = stage.report.paper.page }
  outputs    = { out = "out/score.txt" }
  depends_on = [stage.sft.warm]
}
