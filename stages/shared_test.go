package stages

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/plan"
	"rcgrpo/engine/remote"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/must"
	"rcgrpo/stages/internal/environment"
	"rcgrpo/stages/internal/provider"
)

// shop is a program with one task, whose expert adds 1.
const shop = `while read -r line; do
id=${line#*'"id":'}; id=${id%%,*}
r='{}'
case $line in
*'"method":"hello"'*) r='{"episodes": 4, "tools": [{"name": "add"}]}';;
*'"method":"tasks"'*) r='{"tasks": [{"id": "a", "expert": [[{"name": "add", "arguments": {"n": 1}}]]}]}';;
*'"method":"reset"'*) r='{"user": "Put in one."}';;
*'"calls":[]'*) r='{"done": true}';;
*'"method":"step"'*) r='{"results": ["ok"]}';;
*'"method":"score"'*) r='{"reward": 1}'
esac
echo '{"jsonrpc": "2.0", "id": '$id', "result": '$r'}'
done
`

// sharer is a machine with its own store and the shared store in a folder.
type sharer struct {
	*testing.T
	dir, shared string
}

// run returns the failures of a run and the stages whose results came from the shared store.
func (s *sharer) run(stages string) (failures, fetched string) {
	s.Helper()
	store := must.Get(artifact.Open(filepath.Join(s.TempDir(), "store")))(s)
	site := filepath.Join(s.dir, "site.hcl")
	enginetest.WriteFile(s, site, fmt.Sprintf("remote \"lab\" {\n url = %q\n push = \"yes\"\n}\n", s.shared))
	path := filepath.Join(s.dir, "x.hcl")
	enginetest.WriteFile(s, path, "experiment {}\n"+stages)
	kinds := lang.Registry(Kinds())
	for _, k := range kinds {
		k.InProcess = true
	}
	x, diags := lang.Load(lang.Source{Path: path, Site: site}, kinds)
	if diags.HasErrors() {
		s.Fatal(diags)
	}
	p := must.Get(plan.New(x, store, plan.Options{Remote: remote.Open(x.Site, store)}))(s)
	_ = engine.Run(s.Context(), p, engine.Options{}, func(e runs.Event) { // failures are events
		switch e.Kind {
		case runs.EventFailed, runs.EventNote:
			failures += e.Address + " " + e.Text + "\n"
		case runs.EventFetched:
			fetched += e.Address + " "
		}
	})
	return failures, fetched
}

// replace changes the results of a kind in the shared store as its writer can: edit changes the folder of each port,
// and all hashes follow. Results of other kinds are removed.
func (s *sharer) replace(kind string, edit func(dir string)) {
	s.Helper()
	for _, path := range must.Get(filepath.Glob(filepath.Join(s.shared, "results", "*.json")))(s) {
		var m artifact.Manifest
		must.OK(s, json.Unmarshal(must.Get(os.ReadFile(path))(s), &m))
		must.OK(s, os.Remove(path))
		if m.Kind != kind {
			continue
		}
		for port, o := range m.Outputs {
			dir := s.TempDir()
			must.OK(s, os.CopyFS(dir, os.DirFS(filepath.Join(s.shared, "objects", o.Digest))))
			edit(dir)
			o.Digest, o.Bytes, o.Files = must.Get(artifact.Digest(dir))(s), 0, nil
			must.OK(s, fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				file := filepath.Join(dir, filepath.FromSlash(name))
				n := must.Get(os.Stat(file))(s).Size()
				o.Files = append(o.Files, artifact.FileInfo{Name: name, Bytes: n, SHA256: must.Get(artifact.Digest(file))(s)})
				o.Bytes += n
				return nil
			}))
			m.Outputs[port] = o
			to := filepath.Join(s.shared, "objects", o.Digest)
			must.OK(s, os.RemoveAll(to))
			must.OK(s, os.CopyFS(to, os.DirFS(dir)))
		}
		must.OK(s, os.WriteFile(path, must.Get(artifact.EncodeManifest(m))(s), 0o600))
	}
}

// A writer of the shared store chooses no program that starts here, no file of it, and no server with a variable.
func TestAPoisonedResultStartsNothing(t *testing.T) {
	t.Setenv("RCGRPO_LEASES", filepath.Join(t.TempDir(), "leases"))
	const own = `
stage "tasks" "shop" {
  source  = "command"
  program = dir("shop")
  command = ["sh", "shop.sh"]
  train   = 1
  test    = 0
}
stage "curate" "data" { tasks = stage.tasks.shop.train }
`
	const drills = `
stage "tasks" "drills" {
  source = "drills"
  train  = 1
  test   = 1
  pool   = 5
}
stage "curate" "data" { tasks = stage.tasks.drills.train }
`
	const endpoint = `
stage "tasks" "drills" {
  source = "drills"
  train  = 1
  test   = 1
  pool   = 5
}
stage "endpoint" "api" {
  api      = "openai-chat"
  model    = "m"
  key      = "MODEL_KEY"
  base_url = "http://127.0.0.1:9/v1"
}
stage "rollout" "api" {
  policy = stage.endpoint.api.policy
  tasks  = stage.tasks.drills.train
}
`
	marker := filepath.Join(t.TempDir(), "marker")
	poison := "touch " + marker + "\n"
	program := func(change func(p *environment.Description)) func(dir string) {
		return func(dir string) {
			p, err := environment.ReadDescription(dir)
			if err != nil { // a port without one
				p = new(environment.Description)
			}
			change(p)
			must.OK(t, p.Save(dir))
		}
	}
	for name, tc := range map[string]struct {
		stages, kind string
		edit         func(dir string)
		want         string
	}{
		"the own program": {own, "tasks", func(string) {}, ""},
		"another command": {own, "tasks", program(func(p *environment.Description) {
			p.Command = []string{"sh", "-c", poison + "exec sh shop.sh"}
		}), "not that of its settings"},
		"another file": {own, "tasks", func(dir string) {
			if file := filepath.Join(dir, "program", "shop.sh"); os.Chmod(file, 0o600) == nil {
				must.OK(t, os.WriteFile(file, []byte(poison+shop), 0o600))
			}
		}, "not that of its settings"},
		"another variable": {own, "tasks", program(func(p *environment.Description) {
			p.Secrets = []string{"MODEL_KEY"}
		}), "not that of its settings"},
		"a server in place of a program": {own, "tasks", program(func(p *environment.Description) {
			p.Server = &environment.Server{URL: "http://127.0.0.1:9", Headers: map[string]string{"A": "MODEL_KEY"}}
		}), "not that of its settings"},
		"a program for drills": {drills, "tasks", func(dir string) {
			program(func(p *environment.Description) {
				p.Command = []string{"sh", "-c", poison}
			})(dir)
			must.OK(t, os.WriteFile(filepath.Join(dir, "tasks.jsonl"), []byte(`{"id":"a","spec":{"id":"a","expert":[[]]}}`+
				"\n"), 0o600))
		}, "not that of its settings"},
		"another server of a model": {endpoint, "endpoint", func(dir string) {
			file := filepath.Join(dir, provider.EndpointFile)
			text := strings.Replace(string(must.Get(os.ReadFile(file))(t)), "127.0.0.1:9", "127.0.0.1:10", 1)
			must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		}, "not that of the settings"},
		"another key of a model": {endpoint, "endpoint", func(dir string) {
			file := filepath.Join(dir, provider.EndpointFile)
			text := strings.Replace(string(must.Get(os.ReadFile(file))(t)), "MODEL_KEY", "GITHUB_TOKEN", 1)
			must.OK(t, os.WriteFile(file, []byte(text), 0o600))
		}, "not that of the settings"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &sharer{t, t.TempDir(), t.TempDir()}
			must.OK(t, os.Mkdir(filepath.Join(s.dir, "shop"), 0o700))
			enginetest.WriteFile(t, filepath.Join(s.dir, "shop", "shop.sh"), shop)
			s.run(tc.stages)
			s.replace(tc.kind, tc.edit)
			failures, fetched := s.run(tc.stages)
			if !strings.Contains(fetched, "stage."+tc.kind) {
				t.Errorf("fetched %q, want the result of %s", fetched, tc.kind)
			}
			if tc.want == "" && failures != "" || !strings.Contains(failures, tc.want) {
				t.Errorf("got %q, want %q", failures, tc.want)
			}
			if _, err := os.Stat(marker); err == nil {
				t.Error("the command of another writer was started")
				os.Remove(marker)
			}
		})
	}
}
