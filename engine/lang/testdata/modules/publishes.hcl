stage "exec" "e" {
  command = ["true"]
  outputs = { out = "out.txt" }
}
