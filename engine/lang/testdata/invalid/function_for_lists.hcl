experiment {
  question = "What is wrong here?"
}

locals {
  long  = length("text")         # ERROR: Invalid function argument ; the function for strings is strlen
  turn  = reverse("text")        # ERROR: Invalid function argument ; the function for strings is strrev
  has   = contains("text", "ex") # ERROR: Invalid function argument ; the function for strings is strcontains
  right = [length(["text"]), reverse(["text"]), contains(["text"], "ex"), strlen("text")]
}
