#!/bin/sh
# Pushes and pulls small results through a process of versitygw on this disk. The bars for 10,000 of them are 120 s and
# 60 s. The pull also writes and flushes the local store.
#
# usage: bench/remote.sh [RESULTS]      a multiple of 100; bin/rcgrpo must be built ($BIN names another folder)
set -eu
cd "$(dirname "$0")/.."
n=${1:-10000}
PATH="${BIN:-$(pwd)/bin}:$(pwd)/.deps/bin:$PATH"
command -v versitygw >/dev/null || { echo "bench/remote.sh: no versitygw here (.ci/run installs it); left out"; exit 0; }
dir=$(mktemp -d -p "${TMPDIR:-/tmp}")
mkdir -p "$dir/s3/lab" "$dir/first" "$dir/second"
export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret RCGRPO_LEASES="$dir/leases"
mkdir -m 700 "$RCGRPO_LEASES"
versitygw --port 127.0.0.1:17070 --access key --secret secret posix "$dir/s3" >/dev/null 2>&1 &
trap 'kill $!; rm -rf "$dir"' EXIT
for machine in first second; do
	cat > "$dir/$machine/site.hcl" <<-END
		store {
		  path = "store"
		}
		remote "lab" {
		  url = "s3://lab?endpoint=http://127.0.0.1:17070&region=us-east-1"
		}
	END
	cat > "$dir/$machine/many.hcl" <<-END
		experiment {}
		stage "exec" "x" {
		  for_each = flatten([for a in range($n / 100) : [for b in range(100) : 100 * a + b]])
		  command  = ["sh", "-c", "echo \${each.value} > \$out"]
		  outputs  = { out = "out/\${each.value}.txt" }
		}
	END
done
# timed NAME BAR COMMAND… prints the seconds of a command beside its bar.
timed() {
	name=$1 bar=$2 began=$(date +%s.%N)
	shift 2
	"$@" > "$dir/log" || { cat "$dir/log"; exit 1; }
	echo "$name $bar $began $(date +%s.%N)" |
		awk '{ s = $4 - $3; printf "%-8s %6.1f s  bar %3d s  %s\n", $1, s, $2, s <= $2 ? "met" : "MISSED" }'
}
cd "$dir/first" && rcgrpo run many.hcl > "$dir/log"
timed push 120 rcgrpo store push
timed again 60 rcgrpo store push
cd "$dir/second"
timed plan 60 rcgrpo plan many.hcl
timed fetch 60 rcgrpo store fetch
timed run 60 rcgrpo run many.hcl
grep -q "^start" "$dir/log" && { echo "the second machine executed stages"; exit 1; }
uptime
