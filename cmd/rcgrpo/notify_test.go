package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
)

func TestNotifySendsEveryOutcome(t *testing.T) {
	for name, tc := range map[string]struct {
		err            error
		outcome, error string
	}{
		"done":        {nil, "done", ""},
		"failed":      {&engine.RunError{Failed: []string{"stage.toy.a"}}, "failed", "no luck"},
		"interrupted": {engine.ErrInterrupted, "interrupted", ""},
		"disk full":   {errors.New("write events: no space left"), "failed", "write events: no space left"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := notification{Experiment: "x"}
			now := time.Now()
			r.observe(runs.Event{Kind: runs.EventPlanned, Path: dir, Time: now})
			if tc.error == "no luck" {
				r.observe(runs.Event{Kind: runs.EventFailed, Address: "stage.toy.a", Text: "no luck", Time: now})
				r.observe(runs.Event{Kind: runs.EventFailed, Address: "stage.toy.b", Text: "nor here", Time: now})
			}
			r.observe(runs.Event{Kind: runs.EventEnded, Counts: map[string]int{"done": 2}, Time: now.Add(3 * time.Second)})
			site := &lang.Site{Path: filepath.Join(dir, "site.hcl"), Notify: []string{"sh", "-c", "cat > told"}}
			if err := r.send(site, tc.err); err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(dir, "told"))
			if err != nil {
				t.Fatal(err)
			}
			var told notification
			if err := json.Unmarshal(b, &told); err != nil {
				t.Fatal(err)
			}
			if told.Outcome != tc.outcome || told.Error != tc.error || told.Seconds != 3 || told.Counts["done"] != 2 ||
				told.Folder != dir {
				t.Errorf("got %+v, want outcome %s and error %q after 3 s", told, tc.outcome, tc.error)
			}
		})
	}
}

func TestNotifyKillsWhatTakesTooLong(t *testing.T) {
	dir := t.TempDir()
	r := notification{Experiment: "x", Folder: dir}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := r.start(ctx, &lang.Site{Path: filepath.Join(dir, "site.hcl"),
		Notify: []string{"sh", "-c", "sleep 1000 & sleep 1000"}})
	if err == nil || !strings.Contains(err.Error(), "took more than 10s and was killed") {
		t.Errorf("got %v, want that it was killed", err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}
