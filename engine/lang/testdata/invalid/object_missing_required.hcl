experiment {
  question = "What is wrong here?"
}

stage "model" "base" {
  layers = 2
}

stage "tasks" "t" {
  source = "bfcl"
}

stage "report" "page" {
  compare = { a = {} } # ERROR: Missing setting ; Block compare needs the setting pairs
}
