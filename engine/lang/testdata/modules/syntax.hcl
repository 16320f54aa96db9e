stage "model" "base" {
  layers = # ERROR: Invalid expression
}
