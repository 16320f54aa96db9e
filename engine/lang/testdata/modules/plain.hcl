stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}
