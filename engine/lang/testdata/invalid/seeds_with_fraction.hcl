experiment {
  seeds = [1, 2.5] # ERROR: Bad number ; whole number
}
