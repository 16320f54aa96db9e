experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
  resources {
    gpus  = 4
    nodes = 2 # ERROR: Uneven nodes ; got nodes = 2 and 1 process
  }
}
