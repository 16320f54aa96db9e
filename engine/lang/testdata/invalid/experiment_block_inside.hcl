experiment {
  seeds = [1]
  report { # ERROR: Unknown block
  }
}
