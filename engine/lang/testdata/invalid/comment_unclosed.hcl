experiment {
  question = "What is wrong here?"
}

/* what follows # ERROR: Argument or block definition required
