experiment {
  question = "What is wrong here?"
}

stage "report" "page" {
  compare "a" "b" { # ERROR: Unexpected label
    pairs = []
  }
}
