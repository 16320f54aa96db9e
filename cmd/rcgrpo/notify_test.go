package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
)

// The script run_notify has the other outcomes.
func TestNotifySendsAnErrorOfTheRun(t *testing.T) {
	dir := t.TempDir()
	r := notification{Experiment: "x"}
	now := time.Now()
	r.observe(runs.Event{Kind: runs.EventPlanned, Path: dir, Time: now})
	r.observe(runs.Event{Kind: runs.EventEnded, Counts: map[string]int{"done": 2}, Time: now.Add(3 * time.Second)})
	site := &lang.Site{Path: filepath.Join(dir, "site.hcl"), Notify: []string{"sh", "-c", "cat > told"}}
	must.OK(t, r.send(site, errors.New("write events: no space left")))
	got := must.Get(os.ReadFile(filepath.Join(dir, "told")))(t)
	must.Contain(t, string(got), `"outcome":"failed"`, `"error":"write events: no space left"`, `"seconds":3`)
}

func TestNotifyKillsWhatTakesTooLong(t *testing.T) {
	dir := t.TempDir()
	r := notification{Experiment: "x", Folder: dir}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	err := r.start(ctx, &lang.Site{Path: filepath.Join(dir, "site.hcl"),
		Notify: []string{"sh", "-c", "sleep 1000 & sleep 1000"}})
	must.Match(t, err, "took more than 10s and was killed")
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
}
