experiment {
  question = "What is wrong here?"
}

stage "model" "m" {
  path = file("") # ERROR: Invalid function argument ; empty
}
