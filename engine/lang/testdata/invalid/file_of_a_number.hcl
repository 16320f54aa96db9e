experiment {
  question = "What is wrong here?"
}

stage "model" "m" {
  path = file(3) # ERROR: Invalid function argument ; no file 3
}
