# A first run of a real model: SmolLM2-135M-Instruct, imported from its GGUF file, plays drills over the file system,
# tickets and messages of the benchmark as it comes; a short fine-tuning on the ground truth of other drills; the same
# drills again. The tools stand in the system prompt as signatures, calls are Python text: as JSON documents the tools
# of one class take more tokens than the model can read. `make smollm2` fetches the file and runs this.
# Cost: 5 to 15 minutes on two cores, by the processor. One seed: it shows the way, not a result.

experiment {
  question = "Does a small instruct model learn to call tools from a short fine-tuning?"
  expect   = "It solves no drill as it comes, and some after the fine-tuning"
}

variable "model" { default = "../.deps/smollm2/SmolLM2-135M-Instruct.Q4_1.gguf" } # or a Hugging Face folder
variable "drills" { default = 120 }                                               # of the fine-tuning
variable "test" { default = 24 }                                                  # held-out drills

defaults { limits = { steps = 4, reply = 60, context = 1024 } }

stage "model" "smollm2" {
  path   = strcontains(var.model, ".gguf") ? file(var.model) : dir(var.model)
  layout = "signatures"
}
stage "tasks" "drills" {
  source = "drills"
  train  = var.drills
  test   = var.test
  pool   = var.test
}
stage "curate" "truth" {
  tasks = stage.tasks.drills.train
}
stage "sft" "short" {
  policy   = stage.model.smollm2.checkpoint
  data     = [stage.curate.truth.expert]
  epochs   = 1
  batch    = 8
  lr       = 1e-4
  schedule = { shape = "linear", warmup = 0.1, final = 0.1 }
}
stage "eval" "drills" {
  for_each = { "as it comes" = stage.model.smollm2.checkpoint, "after SFT" = stage.sft.short.checkpoint }
  policy   = each.value
  tasks    = [stage.tasks.drills.test]
}
stage "report" "page" {
  scores      = [stage.eval.drills]
  transcripts = [stage.eval.drills]
  curves      = [stage.sft.short]
  data        = [stage.tasks.drills.train, stage.tasks.drills.test]
  compare "fine-tuning" {
    without = stage.eval.drills["as it comes"]
    with    = stage.eval.drills["after SFT"]
    expect  = "higher"
  }
}
