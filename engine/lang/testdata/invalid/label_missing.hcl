experiment {
  question = "What is wrong here?"
}

stage "report" "page" {
  compare { # ERROR: Missing label
    pairs = []
  }
}
