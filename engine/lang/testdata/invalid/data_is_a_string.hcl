# An input of a command is a file, a folder or a port.
experiment {
}
stage "tasks" "t" {
  source = "bfcl"
}
stage "exec" "x" {
  command = ["true"]
  inputs = {
    raw  = "raw.csv"       # ERROR: Wrong type ; file("name"), dir("name") or a reference
    all  = stage.tasks.t   # ERROR: Ambiguous port ; stage.tasks.t.test
    none = 3               # ERROR: Wrong type ; inputs.none must be
    good = stage.tasks.t.train
  }
}
