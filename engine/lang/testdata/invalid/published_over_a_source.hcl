experiment {
  question = "What is wrong here?"
}

stage "exec" "a" { # ERROR: Published over a source ; cycle.hcl
  command = ["a"]
  inputs  = { src = file("cycle.hcl") }
  outputs = { out = "cycle.hcl" }
}
