package rl

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/internal/must"
)

func drills(t testing.TB, form drill.Form, n int) []*bfcl.Task {
	t.Helper()
	return must.Get(drill.Generate(rand.New(rand.NewPCG(1, 2)), form, drill.Train, "t", n))(t)
}

func TestEveryGroundTruthOfDrillsEarnsItsReward(t *testing.T) {
	for _, form := range []drill.Form{drill.Copy, drill.Single, drill.Multi} {
		for _, task := range drills(t, form, 60) {
			e := must.Get(Expert(task, bfcl.Settings{}))(t)
			if e.Reward != 1 || !e.Official || e.Errors != 0 || e.Stop != StopDone || e.Origin != OriginExpert {
				t.Errorf("%s: reward %v, official %t, %d errors, failure %q", task.ID, e.Reward, e.Official, e.Errors,
					e.Failure)
			}
			calls, users := 0, 0
			for _, m := range e.Messages {
				calls += len(m.Calls)
				if m.Role == RoleUser {
					users++
				}
			}
			want := 0
			for _, turn := range task.Turns {
				want += len(turn.GroundTruth)
			}
			if calls != want || users != len(task.Turns) {
				t.Errorf("%s: %d calls in %d turns, want %d in %d", task.ID, calls, users, want, len(task.Turns))
			}
		}
	}
}

func TestSpoiltEpisodesFailAndDescribeTheirMistakes(t *testing.T) {
	kinds := map[string]int{}
	n := 0
	for _, task := range drills(t, drill.Multi, 150) {
		e := must.Get(Spoil(t.Context(), task, bfcl.Settings{}, 7, 0, new(int)))(t)
		if e == nil {
			continue
		}
		n++
		if e.Reward != 0 || e.Origin != OriginSpoilt || e.Spoilt == "" || e.Stop != StopDone {
			t.Errorf("%s: reward %v, origin %s, spoilt %q, stop %s", task.ID, e.Reward, e.Origin, e.Spoilt, e.Stop)
		}
		again, err := Spoil(t.Context(), task, bfcl.Settings{}, 7, 0, new(int))
		if err != nil || !reflect.DeepEqual(e, again) {
			t.Errorf("%s: the same seed gave another trajectory", task.ID)
		}
		for _, kind := range []string{"skipped", "left out", "instead of"} {
			if strings.Contains(e.Spoilt, kind) {
				kinds[kind]++
			}
		}
	}
	t.Logf("%d of 150 spoilt: %v", n, kinds)
	if n < 145 || len(kinds) != 3 {
		t.Errorf("%d of 150 could be spoilt, by %v", n, kinds)
	}
}

// Copies of the episode from before each of 20,000 calls took more than 10 GB. A task has fewer now; a copy for each of
// these calls would take 30 MB.
func TestALongGroundTruthIsSpoiltInLittleMemory(t *testing.T) {
	task := &bfcl.Task{ID: "t", Classes: []string{"MathAPI", "TicketAPI"}, Turns: make([]bfcl.Turn, 127),
		InitialConfig: json.RawMessage(`{"TicketAPI": {"ticket_queue": [` + strings.Repeat("{},", 900) + `{}]}}`)}
	for i := range task.Turns {
		task.Turns[i].GroundTruth = []string{fmt.Sprintf("add(a=%d, b=1)", i)}
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	must.Get(Spoil(t.Context(), task, bfcl.Settings{}, 7, 0, new(int)))(t)
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 16<<20 {
		t.Errorf("got %d MiB of allocations", got>>20)
	}
}

// Sets of tuples, which all turns compare, took 15 seconds for a variant, of 64, because each plan was executed.
func TestATaskOfMuchWorkIsSpoiltInLittleTime(t *testing.T) {
	var set []string
	for i := range 64 {
		item := []string{"True", "False", "None", "()"}
		set = append(set, fmt.Sprintf("(%s, %s, %s)", item[i%4], item[i/4%4], item[i/16]))
	}
	name := func(i string) string { return "ls()['current_directory_content'][" + i + "]" }
	eight := func(of string) string {
		return "[" + strings.Repeat("cat("+name(of)+")['file_content'],", 8) + "]"
	}
	calls := []string{ // the content of three files: 64 tuples, 8 times these, and 64 times
		"echo({" + strings.Join(set, ",") + "}, " + name("False") + ")",
		"echo(" + eight("False") + ", " + name("True") + ")", "echo(" + eight("True") + ", " + name("-True") + ")"}
	task := &bfcl.Task{ID: "t", Classes: []string{"GorillaFileSystem"}, Turns: make([]bfcl.Turn, 240),
		InitialConfig: json.RawMessage(`{"GorillaFileSystem": {"root": {"w": {"type": "directory", "contents": {
			"a": {"type": "file", "content": ""}, "b": {"type": "file", "content": ""},
			"c": {"type": "file", "content": ""}}}}}}`)}
	for i := range 3 {
		task.Turns[i].GroundTruth = calls
	}
	begin := time.Now()
	e, err := Spoil(t.Context(), task, bfcl.Settings{}, 7, 0, new(int))
	if err != nil || e != nil || time.Since(begin) > 3*time.Second {
		t.Errorf("got %v (%v) after %v, want no failure", e, err, time.Since(begin))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = Spoil(ctx, drills(t, drill.Multi, 1)[0], bfcl.Settings{}, 7, 0, new(int))
	must.Match(t, err, "context canceled")
}

func TestLiteralsOfACall(t *testing.T) {
	call := `f2(a='x\'y', b=[12, -3.5], c="q", d=True)`
	var got []string
	for _, l := range literals(call) {
		got = append(got, call[l.from:l.to])
	}
	if want := []string{`'x\'y'`, "12", "3.5", `"q"`}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	begin := time.Now()
	if got := literals("ls() #" + strings.Repeat(`'1\`, 40_000)); len(got) != 0 || time.Since(begin) > 5*time.Second {
		t.Errorf("%d literals behind a quote that never closes, after %v", len(got), time.Since(begin))
	}
	if got := literals(`f(a='open`); got != nil {
		t.Errorf("an open quote gave %v", got)
	}
}
