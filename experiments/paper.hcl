# The paper's main table on Qwen2.5-7B-Instruct and Llama-3.1-8B-Instruct in one page: base model and four arms with
# the paper's settings (arms.hcl), beside the paper's counts. The notes of the page name the settings that the paper
# leaves open or contradicts. Llama's failures are sampled from Qwen, as in the paper: off-policy.
#   rcgrpo plan experiments/paper.hcl \
#     --var 'models={ qwen = "/models/Qwen2.5-7B-Instruct", llama = "/models/Llama-3.1-8B-Instruct" }'
# With models={ llama = … } alone, name Qwen's folder with --var explorer=FOLDER.
# Cost: that of arms.hcl for each model. No stage has run on a GPU yet. On H200s a stage fits on eight
# (--var gpus=8), on one with the optimizer's state in the host's memory (--var host=all) and on one with an adapter
# (--var lora=16, another method). The results of 1, 2, 4 and 8 GPUs have the same key, because every update has eight
# partial gradients. Without such a machine, `plan` takes its GPUs from a site file: gpus, gpu_memory = "143771MiB",
# and gpu_tokens_per_second for the GPU hours of stages that have never run.

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
variable "processes" { default = 0 }
variable "parts" { default = 8 }
variable "lora" { default = 0 }
variable "host" { default = "none" }
variable "updates" { default = 350 }
variable "take" { default = 0 }
variable "reply" { default = 1024 }
variable "context" { default = 16384 }

module "model" {
  source    = "arms.hcl"
  for_each  = var.models
  base      = each.value
  explorer  = each.key == "qwen" ? null : lookup(var.models, "qwen", var.explorer)
  batches   = var.batches
  gpus      = var.gpus
  processes = var.processes
  parts     = var.parts
  lora      = var.lora
  host      = var.host
  updates   = var.updates
  take      = var.take
  reply     = var.reply
  context   = var.context
}

locals {
  first      = values(module.model)[0].stage # the data of all models are the same
  arms       = ["Base", "SFT + GRPO", "SFT + RC-GRPO", "RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"]
  categories = ["overall", "base", "miss_func", "miss_param", "long_context"]
  # Passed tasks behind each row of the paper's main table.
  paper = {
    qwen = {
      "Base"              = [9, 2, 3, 1, 3]
      "SFT + GRPO"        = [39, 10, 6, 11, 12]
      "SFT + RC-GRPO"     = [37, 9, 6, 11, 11]
      "RCTP-FT + GRPO"    = [59, 12, 11, 17, 19]
      "RCTP-FT + RC-GRPO" = [68, 14, 15, 18, 21]
    }
    llama = {
      "Base"              = [0, 0, 0, 0, 0]
      "SFT + GRPO"        = [28, 7, 3, 9, 9]
      "SFT + RC-GRPO"     = [28, 8, 3, 8, 9]
      "RCTP-FT + GRPO"    = [37, 6, 6, 12, 13]
      "RCTP-FT + RC-GRPO" = [39, 7, 6, 12, 14]
    }
    "API models" = {
      "Opus-4.5"     = [49, 10, 11, 13, 15]
      "GLM-4.7"      = [47, 10, 10, 12, 15]
      "Sonnet-4.5"   = [46, 8, 10, 13, 15]
      "Gemini-3-Pro" = [43, 10, 11, 8, 14]
      "GPT-5.2"      = [40, 7, 8, 10, 15]
    }
  }
  counts = { for group, rows in local.paper :
    group => { for arm, row in rows : arm => zipmap(local.categories, row) }
  }
}

stage "report" "page" {
  scores      = [for m in module.model : m.stage.eval.arm]
  transcripts = [for m in module.model : m.stage.eval.arm]
  arms        = flatten([for m in module.model : [for arm in local.arms : m.stage.eval.arm[arm]]])
  curves = flatten([for m in module.model :
  [values(m.stage.grpo.arm), values(m.stage.rc-grpo.arm), m.stage.sft.warm, m.stage.rctp-ft.warm]])
  data = concat([local.first.tasks.bfcl.train, local.first.tasks.bfcl.test],
  flatten([for data in values(local.first.curate.data) : [data.expert, data.mixed]]))
  notes = split("\n", replace(chomp(<<-EOT
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
    The failures are rollouts of Qwen2.5-7B-Instruct, as in the paper: off-policy for Llama.
    Two rows of the paper's main table have figures in the wrong columns: Opus-4.5 (17, 22 and 23 tasks: 64.71, 59.09
      and 65.22 %) and RCTP-FT + RC-GRPO of Llama (22 and 23 tasks: 54.55 and 60.87 %). The counts here follow from the
      right order.
    Of its other figures, 17.67 % of 17 tasks is no share (3 of 17 are 17.65 %), and 4.54, 17.64, 47.82, 54.54, 81.81
      and 88.23 % are truncated instead of rounded.
    Its bold and underlined base figures of Llama are wrong: SFT + RC-GRPO has the largest (44.44 %); RCTP-FT + RC-GRPO
      and SFT + GRPO are second (38.89 %).
  EOT
  ), "\n  ", " "))
  reference "RC-GRPO paper, main table" {
    url = "https://arxiv.org/abs/2602.03025"
    of  = zipmap(local.categories, [80, 18, 17, 22, 23])
    counts = merge([for name in keys(module.model) :
    { for arm, row in local.counts[name] : "${name}/${arm}" => row }]...)
    others = { for group, rows in local.counts : group => rows if !contains(keys(module.model), group) }
  }
  compare "reward conditioning" {
    without = [for m in module.model : [for init in ["RCTP-FT", "SFT"] : m.stage.eval.arm["${init} + GRPO"]]]
    with    = [for m in module.model : [for init in ["RCTP-FT", "SFT"] : m.stage.eval.arm["${init} + RC-GRPO"]]]
  }
  compare "initialisation" {
    without = [for m in module.model : [for rl in ["RC-GRPO", "GRPO"] : m.stage.eval.arm["SFT + ${rl}"]]]
    with    = [for m in module.model : [for rl in ["RC-GRPO", "GRPO"] : m.stage.eval.arm["RCTP-FT + ${rl}"]]]
  }
}
