experiment {
  question = "What is wrong here?"
}

store { # ERROR: Unknown block ; site file
}
