experiment {
  question = "What is wrong here?"
}

locals {
  long  = length("text")         # ERROR: Invalid function argument ; the function for texts is strlen
  turn  = reverse("text")        # ERROR: Invalid function argument ; the function for texts is strrev
  has   = contains("text", "ex") # ERROR: Invalid function argument ; the function for texts is strcontains
  right = [length(["text"]), reverse(["text"]), contains(["text"], "ex"), strlen("text")]
}
