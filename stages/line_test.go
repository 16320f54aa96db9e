//go:build libtorch

package stages

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
)

func TestX(t *testing.T) {
	root := os.Getenv("XDIR")
	if root == "" {
		t.Skip()
	}
	reg := engine.Registry(Kinds())
	_ = reg
	x, diags := engine.Load(engine.Source{Env: os.Environ(), Path: "/tmp/xd/drills.hcl", Vars: map[string]string{"updates": "3"}}, reg)
	for _, d := range diags {
		t.Log(d)
	}
	dirs := map[string]string{}
	for _, n := range x.Nodes {
		if n.Seed != nil && *n.Seed == 2 {
			continue
		}
		in := map[artifact.Ref]string{}
		ok := true
		for _, i := range n.Inputs {
			if dirs[i.From.Address+"."+i.Ref.Port] == "" {
				ok = false
			}
			r := i.Ref; r.Seed = nil; in[r] = dirs[i.From.Address+"."+i.Ref.Port]
		}
		if !ok {
			continue
		}
		dir := filepath.Join(root, n.Address)
		done := true
		for port := range n.Outputs {
			dirs[n.Address+"."+port] = filepath.Join(dir, port)
			if _, err := os.Stat(filepath.Join(dir, "ok")); err != nil {
				done = false
			}
		}
		if done {
			continue
		}
		os.RemoveAll(dir)
		var seed int64
		if n.Seed != nil {
			seed = *n.Seed
		}
		job, err := engine.NewJob(engine.JobSetup{Dir: dir, Seed: seed, Inputs: in, Log: os.Stderr})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := n.Stage.(engine.Runner).Run(context.Background(), job); err != nil {
			t.Fatalf("%s: %v", n.Address, err)
		}
		os.WriteFile(filepath.Join(dir, "ok"), nil, 0o600)
		t.Logf("%s %.1f s", n.Address, time.Since(start).Seconds())
	}
}
