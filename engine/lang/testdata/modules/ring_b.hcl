module "a" {
  source = "ring_a.hcl" # ERROR: Module includes itself ; is a file of module.m
}
