experiment {
  question = "What is wrong here?"
}

experiment { # ERROR: Duplicate experiment
}
