experiment {
  seeds = [] # ERROR: No seeds
}
