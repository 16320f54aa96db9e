experiment {
  seeds = [1, 2]
}

stage "tasks" "t" {
  source = "drills"
}

stage "report" "r" {
  title = stage.tasks.t.train # ERROR: Unknown setting
}
