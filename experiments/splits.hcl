# The paper's split against a split by family. The paper's 80 test tasks are single draws. The benchmark's four
# categories share their tasks, so nearly every test task has a sibling with the same ground truth in training. The
# same method is trained and tested under both splits.
#   rcgrpo plan experiments/splits.hcl --var base=/models/Qwen2.5-7B-Instruct
# Cost: one fine-tuning and one RC-GRPO run per seed and split; the paper's half is shared with paper.hcl.
# No stage has run on a GPU yet. On one, an RL arm needs --var host=moments: arms.hcl lists the memory.

experiment {
  question = "How much of the reported success is learnt from siblings of the test tasks?"
  expect   = "Lower success under the split by family; the base model, which is not trained, about equal under both"
  seeds    = [1, 2, 3]
}

variable "base" { type = string }  # folder of Qwen2.5-7B-Instruct, as the hub has it
variable "batch" { default = 256 } # tasks per update (paper: 256 for RC-GRPO)
variable "gpus" { default = 1 }    # this and the following as in arms.hcl
variable "host" { default = "none" }
variable "updates" { default = 350 }
variable "take" { default = 0 }
variable "reply" { default = 1024 }
variable "context" { default = 16384 }

module "by" {
  source   = "arms.hcl"
  for_each = toset(["family", "paper"])
  split    = each.key
  base     = var.base
  batches  = { grpo = 64, rc = var.batch }
  gpus     = var.gpus
  host     = var.host
  updates  = var.updates
  take     = var.take
  reply    = var.reply
  context  = var.context
}

stage "eval" "arm" {
  for_each = merge([for split, m in module.by : {
    "Base (${split})"              = { policy = m.stage.model.base, tasks = m.stage.tasks.bfcl.test }
    "RCTP-FT (${split})"           = { policy = m.stage.rctp-ft.warm, tasks = m.stage.tasks.bfcl.test }
    "RCTP-FT + RC-GRPO (${split})" = { policy = m.stage.rc-grpo.arm["rctp"], tasks = m.stage.tasks.bfcl.test }
  }]...)
  policy    = each.value.policy
  tasks     = [each.value.tasks]
  precision = var.gpus > 0 ? "bf16" : "float32"
  limits    = { reply = var.reply, context = var.context }
  resources = { gpus = var.gpus }
}

stage "report" "page" {
  scores = [stage.eval.arm]
  curves = concat([for m in module.by : m.stage.rc-grpo.arm["rctp"]], [for m in module.by : m.stage.rctp-ft.warm])
  data   = flatten([for m in module.by : [m.stage.tasks.bfcl.train, m.stage.tasks.bfcl.test]])
  notes = split("\n", replace(chomp(<<-EOT
    All requests of a task stand in one prompt that ends with the instruction to call done(), as in paper.hcl.
    The two test sets hold different tasks: a difference between the splits is one between sets, and is compared
      without pairing tasks.
    A family is a connected component of tasks that share number, initial state or ground truth; the certificate in
      the table of the split counts what both sides share.
  EOT
  ), "\n  ", " "))
  compare "the paper's split" {
    without  = stage.eval.arm["RCTP-FT + RC-GRPO (family)"]
    with     = stage.eval.arm["RCTP-FT + RC-GRPO (paper)"]
    unpaired = true
    expect   = "higher"
  }
  compare "the paper's split, without training" { # expected: about equal
    without  = stage.eval.arm["Base (family)"]
    with     = stage.eval.arm["Base (paper)"]
    unpaired = true
    matters  = 5
  }
}
