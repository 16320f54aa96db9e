experiment {
  question = "What is wrong here?"
}

stage "tasks" "a b" { # ERROR: Bad name
  source = "bfcl"
}
