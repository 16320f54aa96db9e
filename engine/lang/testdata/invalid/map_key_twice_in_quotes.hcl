experiment {
  question = "What is wrong here?"
}

locals {
  arms = { "Base" = 1, Base = 2 } # ERROR: Duplicate key ; Base
}
