experiment {
  question = "What is wrong here?"
}

variabel "x" { # ERROR: Unknown block ; variable
}
