# Two arms on generated tasks for calling tools, with a tiny model from random weights: 2 processor-minutes with AVX2.
experiment {
  question = "Do copying exercises help a small model to learn tool calls?"
  seeds    = [1, 2] # stages that use randomness run once per seed; a claim about a method needs three seeds
}
variable "drills" { default = 1000 }                        # --var drills=10 is a trial run
stage "tasks" "made" {                                      # stage KIND NAME; its settings: rcgrpo kinds tasks
  for_each = { copy = 16 * var.drills, multi = var.drills } # one instance per entry
  source   = "drills"
  form     = each.key
  train    = each.value
}
stage "curate" "copies" { tasks = stage.tasks.made["copy"].train } # reads the port train of another stage
stage "curate" "drills" { tasks = stage.tasks.made["multi"].train }
stage "model" "random" {
  corpus = stage.curate # trains the tokenizer
  architecture {
    family    = "qwen2"
    hidden    = 128
    layers    = 2
    heads     = 4
    kv_heads  = 2
    mlp       = 384
    rope_base = 1000
    context   = 512
  }
}
stage "sft" "arm" { # the two arms differ in their data
  for_each = { "Drills" = stage.curate.drills, "Drills and copies" = stage.curate }
  policy   = stage.model.random.checkpoint
  data     = each.value
  lr       = 2e-3
}
stage "eval" "arm" { # the keys become the labels on the page
  for_each = stage.sft.arm
  policy   = each.value.checkpoint
  tasks    = stage.tasks.made["multi"].test
  limits { reply = 60 } # tokens
}
stage "report" "page" { scores = stage.eval.arm }
