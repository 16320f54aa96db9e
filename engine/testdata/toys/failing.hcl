stage "toy" "a" {
  text = "a"
}
stage "toy" "bad" {
  from = [stage.toy.a.out]
  fail = "the loss is not a number"
}
stage "toy" "below" {
  from = [stage.toy.bad.out]
}
stage "light" "beside" {
  from = [stage.toy.a.out, stage.toy.late.out]
}
stage "toy" "late" {
  from = [stage.toy.a.out]
  text = "late"
  resources {
    cpus = 4
  }
}
stage "page" "report" {
  from = [stage.toy.bad.out, stage.toy.a.out, stage.toy.below.out]
  text = "page"
}
