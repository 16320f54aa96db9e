experiment {
  question = "What is wrong here?"
}

locals {
  text = <<EOT # ERROR: Invalid expression
  hello # ERROR: Argument or block definition required
}
