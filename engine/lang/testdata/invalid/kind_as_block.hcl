experiment {
  question = "What is wrong here?"
}

model "base" { # ERROR: Unknown block ; stage
}
