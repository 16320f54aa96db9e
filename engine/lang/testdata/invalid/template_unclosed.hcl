experiment {
  question = "What is wrong here?"
}

locals {
  text = "a ${local.b" # ERROR: Unclosed template interpolation sequence
} # ERROR: Invalid multi-line string
