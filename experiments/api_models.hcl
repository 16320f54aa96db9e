# The paper's five API models on its benchmark, called as the benchmark's own handlers call them.
# Cost: `rcgrpo plan` prints the dollars; the keys are read from OPENAI_API_KEY, ANTHROPIC_API_KEY, GOOGLE_API_KEY and
# GLM_API_KEY. The price of GLM must be in the site file (docs/api_models.md). Nobody has run this file yet.

experiment {
  question = "Where do five API models stand on the benchmark's held-out tasks?"
  expect = join(" ", ["Opus-4.5 61 %, GLM-4.7 59 %, Sonnet-4.5 58 %, Gemini-3-Pro 54 %, GPT-5.2 50 %",
  "of 80 tasks by reward (the paper's main table)"])
  seeds = [1] # an API model draws, so each further seed costs as much again
}

variable "take" { default = 0 }          # test tasks; 0 takes all
variable "split" { default = "paper" }   # or "family", which shares nothing between the sides
variable "prompt" { default = "merged" } # as in arms.hcl; "turns" as in the benchmark
variable "budget" { default = 40 }       # dollars of each model

locals {
  counts = {
    "Opus-4.5"     = [49, 10, 11, 13, 15]
    "GLM-4.7"      = [47, 10, 10, 12, 15]
    "Sonnet-4.5"   = [46, 8, 10, 13, 15]
    "Gemini-3-Pro" = [43, 10, 11, 8, 14]
    "GPT-5.2"      = [40, 7, 8, 10, 15]
  }
  categories = ["overall", "base", "miss_func", "miss_param", "long_context"]
}

stage "tasks" "bfcl" {
  source = "bfcl"
  take   = var.take
  prompt = var.prompt
  split  = { by = var.split }
}

stage "endpoint" "api" {
  for_each = {
    "Opus-4.5"     = { api = "anthropic", model = "claude-opus-4-5-20251101" }
    "Sonnet-4.5"   = { api = "anthropic", model = "claude-sonnet-4-5-20250929" }
    "GPT-5.2"      = { api = "openai", model = "gpt-5.2-2025-12-11" }
    "Gemini-3-Pro" = { api = "google", model = "gemini-3-pro-preview" }
    "GLM-4.7"      = { api = "glm", model = "glm-4.7" }
  }
  api   = each.value.api
  model = each.value.model
}

stage "eval" "api" {
  for_each = { for name, e in stage.endpoint.api : name => e.policy }
  policy   = each.value
  tasks    = [stage.tasks.bfcl.test]
  calls { budget = var.budget }
}

stage "report" "page" {
  scores = [stage.eval.api]
  arms   = [for name in keys(local.counts) : stage.eval.api[name]]
  data   = [stage.tasks.bfcl.test]
  reference "RC-GRPO paper, main table" {
    url    = "https://arxiv.org/abs/2602.03025"
    of     = zipmap(local.categories, [80, 18, 17, 22, 23])
    counts = { for arm, row in local.counts : "API models/${arm}" => zipmap(local.categories, row) }
  }
}
