experiment {
  question = "What is wrong here?"
}

stage "grpo" { # ERROR: Wrong labels
}
