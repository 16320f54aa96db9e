stage "model" "base" {
  layers = local.layers # ERROR: Unknown local
}
