experiment {
  question = "What is wrong here?"
}

stage "exec" "x" {
  command = "sort raw.csv" # ERROR: Wrong type ; a list
}
