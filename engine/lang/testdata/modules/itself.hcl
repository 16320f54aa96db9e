module "again" {
  source = "itself.hcl" # ERROR: Module includes itself ; is a file of module.m
}
