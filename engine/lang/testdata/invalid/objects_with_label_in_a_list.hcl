experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

stage "report" "page" {
  compare = [{ pairs = [] }] # ERROR: Wrong type ; a map from labels to objects
}
