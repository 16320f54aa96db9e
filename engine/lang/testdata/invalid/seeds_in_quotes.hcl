experiment {
  seeds = ["1", 2] # ERROR: Wrong type ; without quotes
}
