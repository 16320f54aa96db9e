experiment {
  question = "What is wrong here?"
}

lr = 3 # ERROR: Setting outside a block
