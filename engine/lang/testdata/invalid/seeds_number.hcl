experiment {
  seeds = 5 # ERROR: Wrong type ; a list
}
