experiment {
  question = "What is wrong here?"
}

stage "tasks" "t" {
  source "bfcl" # ERROR: Invalid block definition
}
