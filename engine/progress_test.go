package engine

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// screen replays what a display wrote on a terminal and returns the lines that a person sees.
func screen(t *testing.T, written string) []string {
	t.Helper()
	up := regexp.MustCompile(`^\x1b\[(\d+)F\x1b\[J`)
	var lines []string
	for written != "" {
		if m := up.FindStringSubmatch(written); m != nil {
			n, _ := strconv.Atoi(m[1])
			if n > len(lines) {
				t.Fatalf("goes up %d lines of %d", n, len(lines))
			}
			lines = lines[:len(lines)-n]
			written = written[len(m[0]):]
			continue
		}
		line, rest, _ := strings.Cut(written, "\n")
		lines = append(lines, line)
		written = rest
	}
	return lines
}

var noon = time.Date(2026, 3, 23, 12, 0, 0, 0, time.UTC)

// story is a run of two stages, one of which fails.
func story() []Event {
	at := func(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }
	return []Event{
		{Time: at(0), Kind: EventPlanned, Counts: map[string]int{"run": 3, "up to date": 2}},
		{Time: at(0), Kind: EventStarted, Address: `stage.grpo.arm["sft"]@3`},
		{Time: at(0), Kind: EventStarted, Address: "stage.eval.base"},
		{Time: at(10), Kind: EventProgress, Address: `stage.grpo.arm["sft"]@3`, Done: 10, Total: 100, Unit: "updates"},
		{Time: at(20), Kind: EventProgress, Address: `stage.grpo.arm["sft"]@3`, Done: 30, Total: 100, Unit: "updates", Values: []Value{{"reward", 0.25}}},
		{Time: at(21), Kind: EventDone, Address: "stage.eval.base", Seconds: 21},
		{Time: at(30), Kind: EventFailed, Address: `stage.grpo.arm["sft"]@3`, Text: "loss is NaN",
			Failure: &Failure{Text: "loss is NaN", Log: "/runs/log", Work: "/work", Lines: []string{"update 30"}}},
		{Time: at(30), Kind: EventSkipped, Address: "stage.report.page", Text: "stage.grpo.arm failed"},
		{Time: at(31), Kind: EventEnded, Counts: map[string]int{"done": 1, "failed": 1, "skipped": 1, "up to date": 2}},
	}
}

func TestPlainDisplayIsLinesOnly(t *testing.T) {
	var b bytes.Buffer
	d := NewDisplay(&b, DisplayOptions{})
	for _, e := range story() {
		d.Observe(e)
	}
	d.Close()
	want := `start   grpo.arm[sft]@3
start   eval.base
...     grpo.arm[sft]@3  10/100 updates  10%
...     grpo.arm[sft]@3  30/100 updates  30%  2/s  ETA 35s  reward 0.25
done    eval.base  21s
FAILED  grpo.arm[sft]@3  loss is NaN
  | update 30
  log:     /runs/log
  scratch: /work
failed: grpo.arm[sft]@3
skipped: report.page
1 done, 1 failed, 1 skipped, 2 up to date in 31s
`
	if got := b.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestTerminalDisplayRedrawsALinePerRunningStage(t *testing.T) {
	var b bytes.Buffer
	d := NewDisplay(&b, DisplayOptions{Terminal: true, Colour: true, Size: func() (int, int) { return 60, 24 }})
	defer d.Close()
	see := func() []string {
		d.mu.Lock()
		defer d.mu.Unlock()
		return screen(t, b.String())
	}
	events := story()
	for _, e := range events[:5] {
		d.Observe(e)
	}
	got := see()
	want := []string{
		"  grpo.arm[sft]@3  30/100 updates  30%  2/s  ETA 35s  rewa…",
		"  eval.base        20s",
		"2 running · 1 to go · 20s",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("while two run: got %q, want %q", got, want)
	}
	d.Observe(events[5])
	got = see()
	if len(got) != 3 || got[0] != "\x1b[32mdone   \x1b[0m eval.base  21s" || !strings.HasPrefix(got[1], "  grpo.arm[sft]@3  30/100") {
		t.Errorf("after one is done: got %q, want its line above the live ones", got)
	}
	for _, e := range events[6:] {
		d.Observe(e)
	}
	got = see()
	if last := got[len(got)-1]; last != "1 done, 1 failed, 1 skipped, 2 up to date in 31s" {
		t.Errorf("at the end: got %q, want no live lines", got)
	}
}

func TestNothingToDoIsOneLine(t *testing.T) {
	var b bytes.Buffer
	d := NewDisplay(&b, DisplayOptions{Terminal: true})
	d.Observe(Event{Time: noon, Kind: EventEnded, Counts: map[string]int{"up to date": 12}})
	d.Close()
	if got, want := b.String(), "nothing to do: 12 stages up to date\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestDurationsAreWrittenForPeople(t *testing.T) {
	for seconds, want := range map[float64]string{0.04: "0.0s", 9.94: "9.9s", 59.4: "59s", 61: "1m01s", 7800: "2h10m"} {
		if got := duration(seconds); got != want {
			t.Errorf("%v s: got %q, want %q", seconds, got, want)
		}
	}
}
