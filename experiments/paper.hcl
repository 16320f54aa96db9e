# The paper's main table on Qwen2.5-7B-Instruct and Llama-3.1-8B-Instruct, one page per model: base model and four
# arms with the paper's settings (arms.hcl). The notes of a page name the settings that the paper leaves open or
# contradicts. Llama's failures are sampled from Qwen, as in the paper: off-policy.
#   rcgrpo plan experiments/paper.hcl --var 'models={ qwen = "/models/Qwen2.5-7B-Instruct" }'
#   rcgrpo plan experiments/paper.hcl --var 'models={ llama = "/models/Llama-3.1-8B-Instruct" }' \
#     --var explorer=/models/Qwen2.5-7B-Instruct
# Cost: that of arms.hcl for each model. Stages on several GPUs do not work yet. On one, an RL arm needs
# --var host=moments: arms.hcl lists the memory.

experiment {
  question = "Does RCTP-FT followed by RC-GRPO raise multi-turn success as the paper reports?"
  expect = join(" ", ["RCTP-FT + RC-GRPO 85.00 %, RCTP-FT + GRPO 73.75 %, SFT + GRPO 48.75 %, SFT + RC-GRPO 46.25 %,",
    "base 11.25 % of 80 tasks for Qwen; 48.75 %, 46.25 %, 35.00 %, 35.00 % and 0 % for Llama",
  "(the paper, one run each)"])
  seeds = [1, 2, 3]
}

variable "models" { type = map(string) } # folders as the hub has them: { qwen = …, llama = … }, or one of them
variable "explorer" { default = "" }     # folder of Qwen2.5-7B-Instruct for Llama's failures, if models lacks qwen
variable "batches" { default = { grpo = 64, rc = 256 } }
variable "gpus" { default = 1 } # this and the following as in arms.hcl
variable "host" { default = "none" }
variable "updates" { default = 350 }
variable "take" { default = 0 }
variable "reply" { default = 1024 }
variable "context" { default = 16384 }

module "model" {
  source   = "arms.hcl"
  for_each = var.models
  base     = each.value
  explorer = each.key == "qwen" ? null : lookup(var.models, "qwen", var.explorer)
  batches  = var.batches
  gpus     = var.gpus
  host     = var.host
  updates  = var.updates
  take     = var.take
  reply    = var.reply
  context  = var.context
}

locals {
  arms     = ["Base", "SFT + GRPO", "SFT + RC-GRPO", "RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"]
  failures = "The failures are rollouts of Qwen2.5-7B-Instruct, as in the paper: off-policy for Llama."
}

stage "report" "page" {
  for_each    = { for name, m in module.model : name => m.stage }
  path        = "paper_${each.key}.html"
  scores      = [each.value.eval.arm]
  transcripts = [each.value.eval.arm]
  arms        = [for arm in local.arms : each.value.eval.arm[arm]]
  curves      = [each.value.grpo.arm, each.value.rc-grpo.arm, each.value.sft.warm, each.value.rctp-ft.warm]
  data        = [each.value.tasks.bfcl.train, each.value.tasks.bfcl.test, each.value.curate.data.mixed]
  notes = concat(each.key == "qwen" ? [] : [local.failures], split("\n", replace(chomp(<<-EOT
    The paper's batch of 256 for RC-GRPO and 64 for GRPO is read as tasks per update; equal_compute.hcl has the arms
      with equal batches.
    The split is the paper's draw of 80 of 800 samples: nearly every test task has a sibling in training.
      splits.hcl compares it with a split by family.
    All requests of a task stand in one prompt that ends with the instruction to call done() (the paper's appendix,
      "Format"); one sentence of that appendix gives them turn by turn in fine-tuning.
    The token stands in the first user message (the paper's appendix); its section 3.1 puts it before each action.
    42 of the benchmark's 800 tasks have expert trajectories of more than 16,384 tokens: fine-tuning leaves them
      out, and no episode of RL or evaluation is that long.
    The paper reports one run of each arm; here are three seeds.
    Open in the paper and set here: KL k3 per token, summed over a trajectory as the policy's term is, constant
      learning rate, weight decay 0.01, clipping at norm 1, products in bfloat16, replies of at most 1,024 and
      episodes of at most 16,384 tokens.
  EOT
  ), "\n  ", " ")))
  compare "reward conditioning" {
    without = [for init in ["RCTP-FT", "SFT"] : each.value.eval.arm["${init} + GRPO"]]
    with    = [for init in ["RCTP-FT", "SFT"] : each.value.eval.arm["${init} + RC-GRPO"]]
  }
  compare "initialisation" {
    without = [for rl in ["RC-GRPO", "GRPO"] : each.value.eval.arm["SFT + ${rl}"]]
    with    = [for rl in ["RC-GRPO", "GRPO"] : each.value.eval.arm["RCTP-FT + ${rl}"]]
  }
}
