experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

stage "report" "page" {
  compare = { a = { pairs = [], order = 1 } } # ERROR: Unknown setting ; no setting order
}
