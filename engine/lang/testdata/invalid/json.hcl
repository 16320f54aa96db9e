{ # ERROR: Argument or block definition required
  "experiment": {}
}
