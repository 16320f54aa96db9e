experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  path = file("nowhere.bin") # ERROR: Invalid function argument ; nowhere.bin
}
