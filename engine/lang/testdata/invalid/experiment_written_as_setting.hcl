experiment = { # ERROR: Block expected ; experiment { … }
  seeds = [1]
}
