experiment {
  question = "What is wrong here?"
}

stage "gpro" "arm" { # ERROR: Unknown kind ; grpo
}
