# Commands only: how fast does the error of a mean shrink with the size of the sample? Runs in a second.
experiment {
  question = "Does a hundred times the sample mean a tenth of the error?"
  seeds    = [1, 2, 3] # stages that use randomness run once per seed
}

variable "large" {
  type        = number
  default     = 10000
  description = "size of the large sample, such as --var large=100000"
}

stage "exec" "sample" { # stage KIND NAME: any command with declared inputs, outputs and environment
  for_each = { small = 100, large = var.large }
  command = ["sh", "-c", <<-SCRIPT
    awk -v n="$n" -v seed="$RCGRPO_SEED" 'BEGIN { srand(seed); while (i++ < n) print rand() }' > "$numbers"
  SCRIPT
  ]
  env     = { n = "${each.value}" }
  outputs = { numbers = "numbers_${each.key}.txt" } # a port: its variable has the path, its copy appears here
  draws   = true                                    # RCGRPO_SEED has the seed
}

stage "exec" "error" { # reads other stages, so it runs after them, and again only if their results change
  command = ["sh", "-c", <<-SCRIPT
    for file in "$small" "$large"; do
      awk '{ sum += $1 } END { print NR, sum / NR - 0.5 }' "$file"
    done > "$errors"
  SCRIPT
  ]
  inputs  = { small = stage.exec.sample["small"].numbers, large = stage.exec.sample["large"].numbers }
  outputs = { errors = "errors.txt" } # errors@1.txt to errors@3.txt: one per seed
}
