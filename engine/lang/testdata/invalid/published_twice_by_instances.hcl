experiment {
  question = "What is wrong here?"
}

stage "exec" "a" { # ERROR: Published twice ; table.csv
  for_each = toset(["x", "y"])
  command  = ["a", each.key]
  outputs  = { out = "table.csv" }
}
