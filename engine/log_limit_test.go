package engine_test

import (
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

// The log of a verbose stage is cut while it runs and at its end; that is reported once, and a failure still
// shows the last lines.
func TestStageLogStaysWithinTheLimitOfTheSite(t *testing.T) {
	const limit = 64 << 10
	l := newLab(t, `
stage "light" "ends" {
  text  = "1"
  shell = "echo first; yes | head -c 1000000; echo last"
}
stage "light" "runs" {
  text  = "2"
  shell = <<-EOT
    echo first; yes | head -c 1000000
    until [ $(stat -L -c %s /proc/self/fd/2) -lt 65536 ]; do sleep 0.01; done
    echo last
  EOT
}
stage "light" "fails" {
  text  = "3"
  shell = "echo first; yes | head -c 1000000; echo the reason; exit 3"
}
stage "light" "short" {
  text  = "4"
  shell = "yes | head -c 65536"
}
`)
	l.Put("site.hcl", enginetest.Site+"logs {\n  limit = \"64KiB\"\n}\n")
	r := l.Run(engine.Options{KeepGoing: true})
	notes := map[string]int{}
	for _, e := range r.Events {
		if e.Kind == runs.EventNote && strings.Contains(e.Text, "reached the limit of 65.5 kB") {
			notes[lang.ShortAddress(e.Address)]++
		}
	}
	for name, last := range map[string]string{"light.ends": "last", "light.runs": "last", "light.fails": "the reason"} {
		log := logOf(t, r, name)
		if len(log) > limit || notes[name] != 1 || !strings.HasPrefix(log, "first\ny\n") ||
			!strings.HasSuffix(log, "\ny\n"+last+"\n") || !strings.Contains(log, "bytes were removed here") {
			end := log[max(0, len(log)-20):]
			t.Errorf("%s: got %d bytes, %d notes, %.20q … %q", name, len(log), notes[name], log, end)
		}
	}
	if log := logOf(t, r, "light.short"); len(log) != limit || notes["light.short"] != 0 {
		t.Errorf("short: got %d bytes and %d notes, want the whole log and none", len(log), notes["light.short"])
	}
	lines := wantFailure(t, r, "light.fails", "", "exit code 3").Lines
	if len(lines) == 0 || lines[len(lines)-1] != "the reason" {
		t.Errorf("got %q, want the last lines of the log", lines)
	}
}
