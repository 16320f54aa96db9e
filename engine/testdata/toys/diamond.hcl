stage "toy" "a" {
  text  = "a"
  count = "$dir/count"
}
stage "toy" "b" {
  from  = [stage.toy.a.out]
  text  = "b"
  count = "$dir/count"
}
stage "light" "c" {
  from  = [stage.toy.a.out]
  text  = "c"
  count = "$dir/count"
}
stage "light" "d" {
  from  = [stage.toy.b.out, stage.light.c.out]
  text  = "d"
  count = "$dir/count"
}
