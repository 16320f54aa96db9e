experiment {
  question = "What is wrong here?"
}

stage "tasks" "t" { # ERROR: Unclosed configuration block
  source = "bfcl"
