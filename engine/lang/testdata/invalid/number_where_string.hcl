experiment {
  question = "What is wrong here?"
}

stage "tasks" "t" {
  source = 3 # ERROR: Wrong type ; a string
}
