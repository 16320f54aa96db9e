# Control arms of equal compute. In the paper RC-GRPO has four times GRPO's batch, and RCTP-FT five times SFT's
# updates: does the gain come from the method or from the compute? Every arm of paper.hcl runs with both batches, and
# SFT also with the number of updates of RCTP-FT.
#   rcgrpo plan experiments/equal_compute.hcl --var base=/models/Qwen2.5-7B-Instruct
# Cost: twelve RL runs per seed, six of each batch; the stages of paper.hcl are reused.
# No stage has run on a GPU yet. On one, an RL arm needs --var host=moments: arms.hcl lists the memory.

experiment {
  question = "What is left of the differences between the arms when batch and number of updates are equal?"
  expect = join(" ", ["Nothing is known: the paper reports no such control.",
  "A larger batch alone raises the spread that it prints"])
  seeds = [1, 2, 3]
}

variable "base" { type = string }                            # folder of Qwen2.5-7B-Instruct, as the hub has it
variable "batches" { default = { small = 64, large = 256 } } # tasks per update: the paper's of GRPO and of RC-GRPO
variable "gpus" { default = 1 }                              # this and the following as in arms.hcl
variable "host" { default = "none" }
variable "updates" { default = 350 }
variable "take" { default = 0 }
variable "reply" { default = 1024 }
variable "context" { default = 16384 }

module "arms" { # SFT: 2 passes over 720 expert trajectories are 90 updates, 10 are 450, as many as those of RCTP-FT
  source     = "arms.hcl"
  for_each   = matrix({ epochs = [2, 10], batch = ["small", "large"] })
  sft_epochs = each.value.epochs
  batches    = { grpo = var.batches[each.value.batch], rc = var.batches[each.value.batch] }
  base       = var.base
  gpus       = var.gpus
  host       = var.host
  updates    = var.updates
  take       = var.take
  reply      = var.reply
  context    = var.context
}

locals {
  pairs = ["RCTP-FT + % (64)", "RCTP-FT + % (256)", "SFT + % (64)", "SFT + % (256)"] # % is GRPO or RC-GRPO
  paper = module.arms["2/small"].stage
  arms = { for rl in ["grpo", "rc-grpo"] : rl => merge([for name, batch in { "64" = "small", "256" = "large" } : {
    "SFT + ${upper(rl)} (${name})"                = module.arms["2/${batch}"].stage[rl].arm["sft"]
    "SFT, equal updates + ${upper(rl)} (${name})" = module.arms["10/${batch}"].stage[rl].arm["sft"]
    "RCTP-FT + ${upper(rl)} (${name})"            = module.arms["2/${batch}"].stage[rl].arm["rctp"]
  }]...) }
}

stage "eval" "arm" {
  for_each  = merge(values(local.arms)...)
  init      = split(" + ", each.key)[0]
  method    = split(" + ", each.key)[1]
  policy    = each.value
  tasks     = [local.paper.tasks.bfcl.test]
  precision = var.gpus > 0 ? "bf16" : "float32"
  limits    = { reply = var.reply, context = var.context }
  resources = { gpus = var.gpus }
}

stage "report" "page" {
  scores = [stage.eval.arm]
  curves = concat(values(local.arms["grpo"]), values(local.arms["rc-grpo"]),
  [module.arms["10/small"].stage.sft.warm, local.paper.sft.warm, local.paper.rctp-ft.warm])
  data = [local.paper.tasks.bfcl.train, local.paper.tasks.bfcl.test, local.paper.curate.data["train"].mixed]
  notes = split("\n", replace(chomp(<<-EOT
    All requests of a task stand in one prompt that ends with the instruction to call done(), as in paper.hcl.
    The number in brackets is the batch in tasks per update. Equal updates: SFT makes ten passes over 720
      trajectories, as many updates as RCTP-FT's five over 1,440.
    The spread of a batch grows with the number of its groups; arms with different batches cannot be compared by it.
  EOT
  ), "\n  ", " "))
  compare "batch" { # the claim of expect
    without = [for rl in ["GRPO", "RC-GRPO"] : stage.eval.arm["RCTP-FT + ${rl} (64)"]]
    with    = [for rl in ["GRPO", "RC-GRPO"] : stage.eval.arm["RCTP-FT + ${rl} (256)"]]
    outcome = "spread_batch_ddof1"
    expect  = "higher"
  }
  compare "reward conditioning at equal batch" {
    without = [for arm in local.pairs : stage.eval.arm[replace(arm, "%", "GRPO")]]
    with    = [for arm in local.pairs : stage.eval.arm[replace(arm, "%", "RC-GRPO")]]
  }
  compare "initialisation at equal updates" {
    without = [for rl in ["GRPO (64)", "RC-GRPO (256)"] : stage.eval.arm["SFT, equal updates + ${rl}"]]
    with    = [for rl in ["GRPO (64)", "RC-GRPO (256)"] : stage.eval.arm["RCTP-FT + ${rl}"]]
  }
  compare "batch" {
    without = [for rl in ["GRPO", "RC-GRPO"] : stage.eval.arm["RCTP-FT + ${rl} (64)"]]
    with    = [for rl in ["GRPO", "RC-GRPO"] : stage.eval.arm["RCTP-FT + ${rl} (256)"]]
  }
}
