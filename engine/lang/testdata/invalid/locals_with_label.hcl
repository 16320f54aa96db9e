experiment {
  question = "What is wrong here?"
}

locals "mine" { # ERROR: Wrong labels
}
