module "b" {
  source = "ring_b.hcl"
}
