stage "model" "base" {
  layrs = 2 # ERROR: Unknown setting ; did you mean layers?
}
