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
  compare = { a = 3 } # ERROR: Wrong type ; an object with the settings of the block
}
