experiment: # ERROR: Argument or block definition required
  seeds: [1, 2]
