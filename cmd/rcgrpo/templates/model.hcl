# SFT of a Hugging Face folder of the family Qwen2.5 or Llama 3.1, evaluated before and after. Its chat layout contains
# documents of the benchmark's tools, so site.hcl must name their folder: data { bfcl = ".deps/bfcl" }
experiment {
  question = "Does fine-tuning on expert trajectories help this model?"
}

variable "model" {
  type        = string
  description = "folder with config.json, safetensors and tokenizer: --var model=FOLDER"
}

variable "tasks" { default = 500 } # --var tasks=5 is a trial run

stage "model" "base" { path = dir(var.model) }

stage "tasks" "drills" { # generated; source = "bfcl" has those of the benchmark (docs/models.md)
  source = "drills"
  train  = var.tasks
  test   = var.tasks
}

stage "curate" "experts" { tasks = stage.tasks.drills.train }

stage "sft" "warm" {
  policy = stage.model.base.checkpoint
  data   = [stage.curate.experts.expert]
  lr     = 2e-4
  lora { # without this block all weights are trained; they need a lower rate, such as 1e-5
    rank  = 16
    alpha = 32
  }
}

stage "eval" "arm" {
  for_each = { "Base" = stage.model.base.checkpoint, "SFT" = stage.sft.warm.checkpoint }
  policy   = each.value
  tasks    = [stage.tasks.drills.test]
}

stage "report" "page" { scores = stage.eval.arm }
