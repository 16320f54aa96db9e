experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  path = file(".") # ERROR: Invalid function argument ; dir()
}
