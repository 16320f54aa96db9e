# The base model and the four arms of the paper, {SFT, RCTP-FT} x {GRPO, RC-GRPO}, on the benchmark's multi-turn
# tasks with the paper's settings. paper.hcl, splits.hcl and equal_compute.hcl use its stages.
# Cost: four RL runs. The GRPO arms make 350 updates of 64 x 5 episodes, the RC-GRPO arms 350 of 256 x 5: 1.1
# million episodes per seed. NeMo-RL reports 92.8 s for 2,048 samples of 1,000 tokens on 16 H100. At that rate an
# RC-GRPO arm of one seed of a 7 B model takes about 900 GPU hours, and a GRPO arm about 230. Llama costs 1.1 times
# as much (8.0 against 7.6 B parameters).
# Each stage requests one GPU; no stage has run on one yet. `gpus` = N needs `parts` of at least N. Stages plan with
# 136.4 GiB of an H200. There an RL arm of all weights needs --var host=moments: with as many episodes at once as fit
# it takes 135.9 GiB (Qwen2.5-7B) or 135.4 GiB (Llama-3.1-8B), and 56.7 or 59.8 GiB of the host. docs/models.md has
# the table.

experiment {
  question = "Does RCTP-FT followed by RC-GRPO raise multi-turn success as the paper reports?"
  expect   = "RCTP-FT + RC-GRPO above the other arms (the paper)"
  seeds    = [1, 2, 3]
}

variable "base" { type = string }                        # folder of the base model, as the hub has it
variable "explorer" { default = null }                   # folder of the model whose failures are used; null: the base
variable "batches" { default = { grpo = 64, rc = 256 } } # tasks per update, as in the paper
variable "sft_epochs" { default = 2 }
variable "split" { default = "paper" } # the paper's draw of 80 test tasks, or family
variable "gpus" { default = 1 }        # of a training, rollout or evaluation; 0 for the CPU and float32 (the paper: 8)
variable "processes" { default = 0 }   # of the same on the CPU
variable "parts" { default = 1 }       # partial gradients of an update: at least as many as GPUs or processes
variable "lora" { default = 0 }        # rank of the adapters that trainings train; 0: all weights (the paper)
variable "host" { default = "none" }   # what the optimizer keeps in the host's memory: none, moments or all
variable "updates" { default = 350 }   # optimizer updates of each RL arm (the paper logs 350)
variable "take" { default = 0 }        # tasks kept of each set, for a try at small scale; 0 keeps all
variable "reply" { default = 1024 }    # longest reply in tokens (not in the paper)
variable "context" { default = 16384 } # longest episode and trajectory of fine-tuning in tokens (not in the paper)

defaults {
  precision = var.gpus > 0 ? "bf16" : "float32" # of products; weights, moments and sums are float32
  limits    = { reply = var.reply, context = var.context }
}
defaults "rollout" "sft" "rctp-ft" "grpo" "rc-grpo" "eval" {
  resources = { gpus = var.gpus, processes = var.processes }
}
defaults "sft" "rctp-ft" "grpo" "rc-grpo" {
  recompute      = true
  gradient_parts = var.parts
  optimizer      = { host = var.host }
  lora           = var.lora > 0 ? { rank = var.lora, alpha = 2 * var.lora } : null
}

stage "model" "base" { path = dir(var.base) }
stage "model" "explorer" { path = dir(var.explorer == null ? var.base : var.explorer) }
stage "tasks" "bfcl" { # of the benchmark's 800 tasks the paper trains on 720
  source = "bfcl"
  take   = var.take
  prompt = "merged"
  split  = { by = var.split }
}
stage "rollout" "explore" { # the source of failures
  for_each = { train = stage.tasks.bfcl.train, test = stage.tasks.bfcl.test }
  policy   = stage.model.explorer.checkpoint
  tasks    = each.value
  samples  = 4 # 720 failures from 2,880 rollouts, if at most three quarters succeed or repeat
}
stage "curate" "data" { # fine-tuning reads train only; paper.hcl counts both, as the paper does
  for_each = { train = stage.tasks.bfcl.train, test = stage.tasks.bfcl.test }
  tasks    = each.value
  failures = [stage.rollout.explore[each.key].trajectories]
  ratio    = 1
}
defaults "sft" "rctp-ft" {
  policy      = stage.model.base.checkpoint
  batch       = 16
  lr          = var.lora > 0 ? 1e-4 : 1e-5
  context     = var.context
  micro_batch = var.gpus > 0 ? 24576 : 4096
}

stage "sft" "warm" {
  data   = [stage.curate.data["train"].expert]
  epochs = var.sft_epochs
}
stage "rctp-ft" "warm" {
  data   = [stage.curate.data["train"].mixed]
  epochs = 5
  tokens = { position = "first_user", init = "mean" }
}

defaults "grpo" "rc-grpo" {
  tasks       = [stage.tasks.bfcl.train]
  updates     = var.updates
  group       = 5
  lr          = var.lora > 0 ? 2e-5 : 1e-6
  clip        = { low = 0.2, high = 0.2 }
  kl          = { beta = 0.1 }
  micro_batch = var.gpus > 0 ? 40960 : 4096 # a whole group, so that its prompt is computed once
}
stage "grpo" "arm" {
  for_each = { sft = stage.sft.warm, rctp = stage.rctp-ft.warm }
  policy   = each.value
  batch    = var.batches.grpo
}
stage "rc-grpo" "arm" {
  for_each = { sft = stage.sft.warm, rctp = stage.rctp-ft.warm }
  policy   = each.value
  batch    = var.batches.rc
  tokens   = { high = 0.5, allocation = "iid", position = "first_user" }
}
stage "eval" "arm" {
  for_each = {
    "Base"              = stage.model.base
    "SFT + GRPO"        = stage.grpo.arm["sft"]
    "SFT + RC-GRPO"     = stage.rc-grpo.arm["sft"]
    "RCTP-FT + GRPO"    = stage.grpo.arm["rctp"]
    "RCTP-FT + RC-GRPO" = stage.rc-grpo.arm["rctp"]
  }
  policy = each.value
  tasks  = [stage.tasks.bfcl.test]
}
