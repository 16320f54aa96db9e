experiment {
  seeds = [1, 2
} # ERROR: Missing item separator
