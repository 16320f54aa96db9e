experiment {
  question = "What is wrong here?"
}

resource "gpu" "x" { # ERROR: Unknown block
}
