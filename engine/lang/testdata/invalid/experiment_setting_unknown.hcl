experiment {
  qestion = "?" # ERROR: Unknown setting ; question
}
