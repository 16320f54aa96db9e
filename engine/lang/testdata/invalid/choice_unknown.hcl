experiment {
  question = "What is wrong here?"
}

stage "tasks" "t" {
  source = "bfclx" # ERROR: Unknown choice ; bfcl
}
