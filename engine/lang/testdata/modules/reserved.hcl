variable "source" { # ERROR: Bad name ; rename the variable
  default = 1
}

stage "model" "base" {
  layers = var.source
}
