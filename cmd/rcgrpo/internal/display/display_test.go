package display

import (
	"bytes"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"rcgrpo/engine/plan"
	"rcgrpo/engine/runs"
)

// screen returns the lines that a terminal shows after the output of a display.
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

// story returns the events of a run of two stages, one of which fails.
func story() []runs.Event {
	at := func(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }
	return []runs.Event{
		{Time: at(0), Kind: runs.EventPlanned, Counts: map[string]int{"run": 3, "up to date": 2}},
		{Time: at(0), Kind: runs.EventStarted, Address: `stage.grpo.arm["sft"]@3`},
		{Time: at(0), Kind: runs.EventStarted, Address: "stage.eval.base"},
		{Time: at(10), Kind: runs.EventProgress, Address: `stage.grpo.arm["sft"]@3`, Done: 10, Total: 100, Unit: "updates"},
		{Time: at(20), Kind: runs.EventProgress, Address: `stage.grpo.arm["sft"]@3`, Done: 30, Total: 100, Unit: "updates",
			Values: []runs.Value{{Name: "reward", Value: 0.25}}},
		{Time: at(21), Kind: runs.EventDone, Address: "stage.eval.base", Seconds: 21},
		{Time: at(30), Kind: runs.EventFailed, Address: `stage.grpo.arm["sft"]@3`, Text: "loss is NaN",
			Failure: &runs.Failure{Text: "loss is NaN", Log: "/runs/log", Work: "/work", Lines: []string{"update 30"}}},
		{Time: at(30), Kind: runs.EventSkipped, Address: "stage.report.page", Text: "stage.grpo.arm failed"},
		{Time: at(31), Kind: runs.EventEnded, Counts: map[string]int{"done": 1, "failed": 1, "skipped": 1,
			"up to date": 2}},
	}
}

// check checks the output of a display after some events.
func check(t *testing.T, o Options, events []runs.Event, want string) {
	t.Helper()
	var b bytes.Buffer
	d := New(&b, o)
	for _, e := range events {
		d.Observe(e)
	}
	d.Close()
	if got := b.String(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

// Of 100 updates 10 are done after 10 s and 30 after 20 s, so 20 updates take 10 s from the first report on.
func TestDisplayPrintsTheTimeOfTheWholeRunByItsFirstUpdates(t *testing.T) {
	var b bytes.Buffer
	d := New(&b, Options{Left: func(spent map[string]plan.Spent) time.Duration {
		s := spent[`stage.grpo.arm["sft"]@3`]
		return s.Time * time.Duration(math.Round(100*s.Share))
	}})
	defer d.Close()
	events := story()[:5]
	for _, seconds := range []time.Duration{40, 81} {
		e := events[4]
		e.Time, e.Done = noon.Add(seconds*time.Second), 50
		events = append(events, e)
	}
	for _, e := range events {
		d.Observe(e)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		if strings.HasPrefix(line, "expect") || strings.HasPrefix(line, "left") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	// At 20 s: 10 s × 20 % of 100; at 81 s: 71 s × 40.
	want := []string{"expect  about 4 min in all, by the first updates", "left    about 47 min"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPlainDisplayIsLinesOnly(t *testing.T) {
	check(t, Options{}, story(), `start   grpo.arm[sft]@3
start   eval.base
...     grpo.arm[sft]@3  10/100 updates  10%
...     grpo.arm[sft]@3  30/100 updates  30%  2/s  ETA 35s  reward 0.25
done    eval.base  21s
FAILED  grpo.arm[sft]@3  loss is NaN
  | update 30
  log:     /runs/log
  scratch: /work
failed: grpo.arm[sft]@3
skipped: report.page (grpo.arm failed)
1 done, 1 failed, 1 skipped, 2 up to date in 31s
`)
}

func TestTerminalDisplayRedrawsALinePerRunningStage(t *testing.T) {
	var b bytes.Buffer
	d := New(&b, Options{Terminal: true, Colour: true, Size: func() (int, int) { return 60, 24 }})
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
		"  grpo.arm[sft]@3  30/100 updates  30%  2/s  ETA 35s",
		"  eval.base        20s",
		"2 running · 1 to go · 20s",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("with two running stages: got %q, want %q", got, want)
	}
	d.Observe(events[5])
	got = see()
	if len(got) != 3 || got[0] != "\x1b[32mdone   \x1b[0m eval.base  21s" ||
		!strings.HasPrefix(got[1], "  grpo.arm[sft]@3  30/100") {
		t.Errorf("after the first stage: got %q, want its line above the live lines", got)
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
	for want, counts := range map[string]map[string]int{
		"nothing to do: 12 stages up to date\n": {"up to date": 12},
		"nothing to do: 1 stage up to date, 2 not here (--replace ADDRESS runs one again)\n": {"up to date": 1,
			"not here": 2},
	} {
		check(t, Options{Terminal: true, Size: func() (int, int) { return 80, 24 }},
			[]runs.Event{{Time: noon, Kind: runs.EventEnded, Counts: counts}}, want)
	}
}

func TestDurationsAreRoundedForPeople(t *testing.T) {
	for seconds, want := range map[float64]string{0.04: "0.0s", 9.94: "9.9s", 59.4: "59s", 61: "1m01s", 7800: "2h10m"} {
		if got := runs.DurationText(seconds); got != want {
			t.Errorf("%v s: got %q, want %q", seconds, got, want)
		}
	}
}

// stagesAt returns n stages that have been running for half a minute.
func stagesAt(n int) (running []*stage) {
	for i := range n {
		s := &stage{address: fmt.Sprintf(`stage.rc-grpo.arm["RCTP-FT + RC-GRPO, rate 1e-5, group 8"]@%d`, i+1)}
		s.Started = noon
		switch i {
		case 1:
			s.address, s.Estimate = "stage.eval.base", 90*time.Second
		default:
			s.First = runs.Event{Time: noon, Unit: "updates"}
			s.Last = runs.Event{Time: noon.Add(30 * time.Second), Done: 3 * (i + 1), Total: 1000, Unit: "updates",
				Values: []runs.Value{{Name: "reward", Value: 0.25}}}
		}
		running = append(running, s)
	}
	return running
}

func TestFrames(t *testing.T) {
	now := noon.Add(30 * time.Second)
	for name, tc := range map[string]struct {
		stages, width, rows int
		want                string
	}{
		"one stage, 80 columns: the address is shortened, values are dropped": {1, 80, 9, `
  rc-grpo.arm[RCTP-… 1e-5, group 8]@1  3/1000 updates  0%  10 s each  ETA 2h46m`},
		"three stages, 80 columns: columns are aligned": {3, 80, 9, `
  rc-grpo.arm[RC…5, group 8]@1  3/1000 updates      0%  10 s each    ETA 2h46m
  eval.base                     30s of about 1m30s
  rc-grpo.arm[RC…5, group 8]@3  9/1000 updates      0%  3.33 s each  ETA 55m03s`},
		"three stages, 200 columns: everything fits": {3, 200, 9, `
  rc-grpo.arm[RCTP-FT + RC-GRPO, rate 1e-5, group 8]@1  3/1000 updates      0%  10 s each    ETA 2h46m   reward 0.25
  eval.base                                             30s of about 1m30s
  rc-grpo.arm[RCTP-FT + RC-GRPO, rate 1e-5, group 8]@3  9/1000 updates      0%  3.33 s each  ETA 55m03s  reward 0.25`},
		"twenty stages, three rows": {20, 60, 3, `
  rc-grpo.arm…group 8]@1  3/1000 updates      0%  ETA 2h46m
  eval.base               30s of about 1m30s
  … and 18 more`},
		"a very narrow terminal": {1, 30, 9, `
  rc-grpo.ar…roup 8]@1  3/10…`},
	} {
		t.Run(name, func(t *testing.T) {
			lines := frame(stagesAt(tc.stages), now, tc.width, tc.rows)
			if got := "\n" + strings.Join(lines, "\n"); got != tc.want {
				t.Errorf("got:%s\nwant:%s", got, tc.want)
			}
			for _, line := range lines {
				if n := utf8.RuneCountInString(line); n >= tc.width {
					t.Errorf("%q has %d columns of %d", line, n, tc.width)
				}
			}
			if len(lines) > tc.rows {
				t.Errorf("got %d lines, want at most %d", len(lines), tc.rows)
			}
		})
	}
}

func TestLinesThatWrapInANarrowerTerminalAreErasedWhole(t *testing.T) {
	lines := []string{strings.Repeat("x", 79), "short", strings.Repeat("ä", 41)}
	for width, want := range map[int]string{80: "\x1b[3F\x1b[J", 40: "\x1b[5F\x1b[J", 41: "\x1b[4F\x1b[J"} {
		if got := erase(lines, width); got != want {
			t.Errorf("%d columns: got %q, want %q", width, got, want)
		}
	}
}

func TestSkippedStagesAreGroupedByReason(t *testing.T) {
	events := []runs.Event{{Time: noon, Kind: runs.EventPlanned, Counts: map[string]int{"run": 40}},
		{Time: noon, Kind: runs.EventFailed, Address: "stage.toy.a", Text: "two\nlines\x1b[2J"}}
	for i := range 30 {
		events = append(events, runs.Event{Time: noon, Kind: runs.EventSkipped, Address: fmt.Sprintf("stage.toy.n%d", i),
			Text: "stage.toy.a failed"})
	}
	events = append(events,
		runs.Event{Time: noon, Kind: runs.EventSkipped, Address: "stage.toy.z", Text: "stage.toy.y failed"},
		runs.Event{Time: noon, Kind: runs.EventEnded, Counts: map[string]int{"failed": 1, "skipped": 31}})
	check(t, Options{}, events, `FAILED  toy.a  two
lines�[2J
failed: toy.a
skipped: toy.n0, toy.n1, toy.n2, toy.n3, toy.n4, toy.n5, toy.n6, toy.n7, toy.n8, toy.n9 and 20 more (toy.a failed)
skipped: toy.z (toy.y failed)
1 failed, 31 skipped in 0.0s
`)
}

// After ^Z and fg the lines above the cursor belong to the shell.
func TestContinuedDisplayErasesNothing(t *testing.T) {
	var screen strings.Builder
	d := New(&screen, Options{Terminal: true, Size: func() (int, int) { return 80, 24 }})
	now := time.Now()
	d.Observe(runs.Event{Time: now, Kind: runs.EventStarted, Address: "stage.toy.a"})
	d.Continued()
	screen.Reset()
	d.mu.Lock()
	d.redraw(now.Add(time.Second))
	d.mu.Unlock()
	if got := screen.String(); !strings.Contains(got, "toy.a") || strings.Contains(got, "\x1b[J") {
		t.Errorf("got %q, want live lines and no erase sequence", got)
	}
	d.Close()
}
