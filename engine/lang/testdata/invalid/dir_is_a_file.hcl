experiment {
  question = "What is wrong here?"
}

stage "model" "m" {
  path = dir("cycle.hcl") # ERROR: Invalid function argument ; file()
}
