experiment {
  question = "What is wrong here?"
}

stage "tasks" "t" "x" { # ERROR: Wrong labels
  source = "bfcl"
}
