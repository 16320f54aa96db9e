stage "tasks" "t" { # ERROR: No experiment
  source = "bfcl"
}
