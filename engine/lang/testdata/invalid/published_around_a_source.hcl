experiment {
  question = "What is wrong here?"
}

stage "exec" "a" { # ERROR: Published over a source ; is or contains a source
  command = ["a"]
  inputs  = { src = file("data/raw.csv") }
  outputs = { out = "data" }
}
