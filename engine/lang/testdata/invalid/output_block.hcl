experiment {
  question = "What is wrong here?"
}

output "x" { # ERROR: Unknown block
  value = 3
}
