package enginetest

import (
	"errors"
	"path/filepath"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/internal/must"
)

// Content returns the content of a port of a node that Make executes.
type Content func(n *lang.Node, key, port string) string

// ByKey gives new content whenever the key is new.
func ByKey(_ *lang.Node, key, port string) string { return key + port }

// ByAddress gives a node the same content under every key.
func ByAddress(n *lang.Node, _, port string) string { return n.Address + port }

// Make does the work of a plan without running stages: it commits content for every node whose key has no
// result. It returns the addresses of these nodes.
func Make(t testing.TB, p *plan.Plan, content Content) (executed []string) {
	t.Helper()
	made := map[*lang.Node]*artifact.Manifest{}
	for _, d := range p.Nodes {
		key, parts, ok := plan.Key(d.Node, func(from *lang.Node, port string) (string, bool) {
			o, ok := made[from].Outputs[port]
			return o.Digest, ok
		})
		if !ok {
			t.Fatalf("%s: an input is missing", d.Address)
		}
		m, err := p.Store.Lookup(key)
		if err != nil || d.Force {
			if err != nil && !errors.Is(err, artifact.ErrNotFound) && !errors.As(err, new(artifact.Problem)) {
				t.Fatal(err)
			}
			m = commit(t, p, d.Node, key, parts, content)
			executed = append(executed, d.Address)
		}
		must.OK(t, p.Store.Remember(p.Experiment.Name, d.Address, key))
		made[d.Node] = m
	}
	return executed
}

func commit(t testing.TB, p *plan.Plan, n *lang.Node, key string, parts artifact.Parts,
	content Content) *artifact.Manifest {
	t.Helper()
	staging := must.Get(p.Store.Begin(key))(t)
	for port := range n.Outputs {
		dir := must.Get(staging.Dir(port))(t)
		WriteFile(t, filepath.Join(dir, "out.txt"), content(n, key, port))
	}
	return must.Get(staging.Commit(artifact.Manifest{Key: key, Kind: n.Kind.Name, Version: n.Kind.Version,
		Experiment: p.Experiment.Name, Address: n.Address, Parts: parts, Seconds: 2}, n.Outputs))(t)
}

// NewStore opens a store in a temporary folder.
func NewStore(t testing.TB) *artifact.Store {
	t.Helper()
	return must.Get(artifact.Open(filepath.Join(t.TempDir(), "store")))(t)
}

// Causes maps the short addresses of the nodes that are not up to date to "verb: cause".
func Causes(p *plan.Plan) map[string]string {
	out := map[string]string{}
	for _, d := range p.Nodes {
		if d.Verb != plan.UpToDate {
			out[lang.ShortAddress(d.Address)] = string(d.Verb) + ": " + d.Cause.Text
		}
	}
	return out
}
