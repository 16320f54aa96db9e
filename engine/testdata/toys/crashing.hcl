stage "toy" "a" {
  text  = "a"
  draw  = true
  count = "$dir/count"
}
stage "light" "program" {
  text  = "program"
  count = "$dir/count"
  shell = "sleep 0.05; echo done"
}
stage "light" "b" {
  from  = [stage.toy.a.out]
  text  = "b"
  count = "$dir/count"
}
stage "toy" "c" {
  from  = [stage.light.b.out, stage.light.program.out]
  text  = "c"
  count = "$dir/count"
}
stage "light" "command" {
  from  = [stage.light.b.out]
  text  = "command"
  count = "$dir/count"
  shell = "(sleep 0.04); sleep 0.02"
}
stage "light" "taken" {
  from  = [stage.light.command.out]
  count = "$dir/count"
  shell = "mkdir made; sleep 0.01; echo taken >made/out.txt"
  takes = true
}
stage "toy" "d" {
  from  = [stage.toy.a.out, stage.light.taken.out]
  text  = "d"
  count = "$dir/count"
}
stage "light" "e" {
  from  = [stage.toy.c.out, stage.toy.d.out]
  text  = "e"
  count = "$dir/count"
}
