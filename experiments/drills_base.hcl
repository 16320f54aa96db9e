# The base model of the drills, its data, and the two initial policies of RL. The other files about drills include
# this one as a module and share its results.
# Cost: a part of that of drills.hcl, or with --var size=large of drills_long.hcl.

experiment {
  question = "Does a small model from random weights learn to call tools well enough for RL to start from it?"
  expect   = "The base solves about half of the held-out drills, and fine-tuning adds to that (see LOG.md)"
  seeds    = [1, 2, 3]
}

variable "size" { default = "small" }  # 574,592 parameters, a base per seed; large: 1.45 million, one for all seeds
variable "rl_tasks" { default = 1200 } # training tasks of RL: tasks per update times updates

# Passes over the data of fine-tuning: the paper's. Equal numbers of updates are sft = 8, rctp = 4, because RCTP-FT has
# twice the data.
variable "passes" { default = { sft = 2, rctp = 5 } }

locals {
  size = {
    small = { copy = 16000, single = 12000, multi = 1500, train = 1000, test = 500, seed = null,
    model = { hidden = 128, layers = 2, heads = 4, mlp = 384 } }
    large = { copy = 24000, single = 20000, multi = 3000, train = 2000, test = 400, seed = 0,
    model = { hidden = 192, layers = 3, heads = 6, mlp = 512 } }
  }[var.size]
}
defaults { limits = { steps = 4, reply = 60, context = 384 } }
defaults "sft" "rctp-ft" { optimizer = { beta2 = 0.98 } }
defaults "tasks" { source = "drills" }

stage "tasks" "lessons" { # for the base; 8,000 copy drills are too few to learn copying (see LOG.md)
  for_each = ["copy", "single", "multi"]
  form     = each.key
  train    = local.size[each.key]
  test     = each.key == "multi" ? 0 : null
  seed     = 0
}
stage "tasks" "drills" { # training tasks of the initial policies per seed; the test sets are the same for all seeds
  train = local.size.train
  test  = local.size.test
  pool  = local.size.test
}
stage "tasks" "fresh" { # for RL
  train = var.rl_tasks
  skip  = local.size.train # the tasks of the initial policies
  test  = 0
}
stage "curate" "lessons" {
  for_each = stage.tasks.lessons
  tasks    = each.value.train
}
stage "model" "random" { # random weights that learn to copy, then to call
  seed         = local.size.seed
  corpus       = [for form in ["copy", "single", "multi"] : stage.curate.lessons[form].expert]
  vocab        = 1408
  architecture = merge({ family = "qwen2", kv_heads = 2, rope_base = 1000, context = 512 }, local.size.model)
}
stage "sft" "copy" {
  seed     = local.size.seed
  policy   = stage.model.random.checkpoint
  data     = [stage.curate.lessons["copy"].expert]
  epochs   = 1
  batch    = 32
  lr       = 2e-3
  schedule = { shape = "constant", warmup = 20 }
}

stage "sft" "base" {
  seed     = local.size.seed
  policy   = stage.sft.copy.checkpoint
  data     = [for form in ["single", "multi"] : stage.curate.lessons[form].expert]
  epochs   = 1
  batch    = 16
  lr       = 2e-3
  schedule = { shape = "linear", warmup = 0, final = 0.2 }
}

stage "rollout" "explore" { # real failures, for stage1.hcl and when.hcl
  policy = stage.sft.base.checkpoint
  tasks  = stage.tasks.drills.train
}

stage "curate" "data" { # with the settings of rctp-ft.warm: the widest gap between the tokens of stage1.hcl
  tasks  = stage.tasks.drills.train
  ratio  = 1
  spoilt = 1
}

stage "sft" "warm" {
  policy   = stage.sft.base.checkpoint
  data     = [stage.curate.data.expert]
  epochs   = var.passes.sft
  lr       = 1e-3
  schedule = { shape = "linear", warmup = 0, final = 0.1 }
}

stage "rctp-ft" "warm" {
  policy   = stage.sft.base.checkpoint
  data     = [stage.curate.data.mixed]
  epochs   = var.passes.rctp
  lr       = 1e-3
  tokens   = { position = "before_each_action" }
  schedule = { shape = "linear", warmup = 0, final = 0.1 }
}
