experiment {
  question = "What is wrong here?"
}

stage "exec" "x" {
  command = ["sh", "-c", "echo ${HOME}"] # ERROR: Unknown name ; $${HOME}
}
