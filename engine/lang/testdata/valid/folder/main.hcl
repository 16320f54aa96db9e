experiment {
  question = "Does a folder load like one file?"
  seeds    = [1, 2]
}

stage "sft" "warm" {
  policy = local.base
  data   = stage.curate.data.expert
}
