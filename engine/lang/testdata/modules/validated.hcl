variable "layers" {
  type = number
  validation {
    condition = var.layers > 1 # ERROR: Invalid value ; At least two. Variable layers is 1.
    message   = "At least two."
  }
}

stage "model" "base" {
  layers = var.layers
}
