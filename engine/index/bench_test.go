package index

import (
	"fmt"
	"os"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
)

// BenchmarkQuestions asks a store of 10,000 results and 200 runs, of which the newest has 10,000 stages: with the index
// as it is after the first question (warm), when it was deleted (cold), and without one (truth).
func BenchmarkQuestions(b *testing.B) {
	h := benchStore(b)
	folders, err := engine.Runs(h.store, "x")
	if err != nil {
		b.Fatal(err)
	}
	for _, question := range []struct {
		name string
		ask  func(x *Index) error
	}{
		{"status of a run of 50 stages", func(x *Index) error { _, err := x.Summary(folders[1]); return err }},
		{"status of a run of 10,000 stages", func(x *Index) error { _, err := x.Summary(folders[0]); return err }},
		{"every stage of that run", func(x *Index) error { _, err := x.Run(folders[0]); return err }},
		{"10,000 results", func(x *Index) error { _, _, err := x.Results(); return err }},
	} {
		ask := func(b *testing.B, open func(*artifact.Store) *Index) {
			x := open(h.store)
			defer x.Close()
			if err := question.ask(x); err != nil {
				b.Fatal(err)
			}
		}
		b.Run(question.name+"/warm", func(b *testing.B) {
			ask(b, Open)
			for b.Loop() {
				ask(b, Open)
			}
		})
		b.Run(question.name+"/cold", func(b *testing.B) {
			for b.Loop() {
				os.Remove(h.indexPath())
				ask(b, Open)
			}
		})
		b.Run(question.name+"/truth", func(b *testing.B) {
			for b.Loop() {
				ask(b, Without)
			}
		})
	}
}

func benchStore(b *testing.B) *history {
	b.Helper()
	h := newHistory(b, 1)
	for i := range 10_000 {
		h.result(fmt.Sprintf("%064x", i))
	}
	for i := range 200 {
		stages := 50
		if i == 199 {
			stages = 10_000
		}
		h.newRun(stages)
		dir := h.runs[i]
		var events []engine.Event
		for n := range stages {
			address := fmt.Sprintf("stage.toy.n%d", n)
			at := time.Unix(int64(2e9+n), 0).UTC()
			events = append(events, engine.Event{Kind: engine.EventStarted, Address: address, Time: at},
				engine.Event{Kind: engine.EventProgress, Address: address, Time: at, Done: 1, Total: 2, Unit: "updates"},
				engine.Event{Kind: engine.EventDone, Address: address, Time: at, Key: "k", Seconds: 1})
		}
		h.write(dir, events)
	}
	return h
}
