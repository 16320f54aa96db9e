experiment {
  seeds = [1, 2, 1] # ERROR: Duplicate seed
}
