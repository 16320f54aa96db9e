experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  path = "cycle.hcl" # ERROR: Wrong type ; file("name")
}
