experiment {
  question = "What is wrong here?"
}

stage "exec" "a" {
  command = ["a"]
  outputs = { out = "table.csv" }
}

stage "exec" "b" { # ERROR: Published twice ; stage.exec.a and stage.exec.b
  command = ["b"]
  outputs = { out = "table.csv" }
}
