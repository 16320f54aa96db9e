experiment {
  question = "What is wrong here?"
}

stage "model" "m" {
  path = dir("nowhere") # ERROR: Invalid function argument ; there is no folder nowhere
}
