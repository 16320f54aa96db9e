experiment {
  question = "What is wrong here?"
}

locals {
  home = env("HOME") # ERROR: Call to unknown function ; the environment
}
