# The paper's four arms on tasks and tools of your own: shop/shop.py plays the environment (docs/own_tasks.md).
experiment {
  question = "Do reward tokens help a small model to learn the tools of shop/shop.py?"
  seeds    = [1, 2, 3]
}
variable "updates" { default = 60 } # --var updates=2 is a trial run
stage "tasks" "shop" {              # asks the program for its tasks, and tries it
  source  = "command"
  program = dir("shop", ["__pycache__"])
  command = ["python3", "shop.py"]
  train   = 270
  test    = 100
}
stage "curate" "experts" { tasks = stage.tasks.shop.train } # plays the expert calls of the tasks
stage "model" "random" {
  corpus       = [stage.curate.experts.expert]
  vocab        = 320
  architecture = { family = "qwen2", hidden = 96, layers = 2, heads = 4, kv_heads = 2, mlp = 256, rope_base = 1000, context = 192 }
}
stage "sft" "base" {
  policy = stage.model.random.checkpoint
  data   = [stage.curate.experts.expert]
  epochs = 3
  lr     = 2e-3
}
defaults { limits = { steps = 4, reply = 30, context = 176 } }
stage "rollout" "explore" { # its failures become the data under the low token
  policy  = stage.sft.base.checkpoint
  tasks   = stage.tasks.shop.train
  samples = 4
}
stage "curate" "mixed" {
  tasks    = stage.tasks.shop.train
  failures = stage.rollout.explore
}
defaults "sft" "rctp-ft" { batch = 16 }
stage "sft" "warm" {
  policy = stage.sft.base.checkpoint
  data   = [stage.curate.experts.expert]
  epochs = 1
  lr     = 2e-4
}
stage "rctp-ft" "warm" {
  policy = stage.sft.base.checkpoint
  data   = [stage.curate.mixed.mixed]
  epochs = 1
  lr     = 2e-4
  tokens { position = "before_each_action" }
}
locals { warm = { SFT = stage.sft.warm.checkpoint, RCTP-FT = stage.rctp-ft.warm.checkpoint } }
defaults "grpo" "rc-grpo" {
  updates = var.updates
  batch   = 8
  group   = 6
  lr      = 3e-4
  tasks   = stage.tasks.shop.train
}
stage "grpo" "arm" {
  for_each = local.warm
  policy   = each.value
}
stage "rc-grpo" "arm" {
  for_each = local.warm
  policy   = each.value
  tokens   = { position = "before_each_action", init = "copy:<|assistant|>" } # of the arm that starts without them
}
stage "eval" "arm" {
  for_each = merge(local.warm, { for name, arm in stage.grpo.arm : "${name} + GRPO" => arm.checkpoint },
  { for name, arm in stage.rc-grpo.arm : "${name} + RC-GRPO" => arm.checkpoint })
  policy = each.value
  tasks  = stage.tasks.shop.test
}
stage "report" "page" {
  scores = stage.eval.arm
  curves = [stage.grpo.arm, stage.rc-grpo.arm]
  compare "training" {
    without = stage.eval.arm["RCTP-FT"]
    with    = stage.eval.arm["RCTP-FT + RC-GRPO"]
  }
}
