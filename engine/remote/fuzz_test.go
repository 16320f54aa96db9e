package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

// A writer of the remote store makes any manifest of a key, with its right hash. It is fetched or refused; no file
// outside the store is written, and the store stays sound.
func FuzzRecords(f *testing.F) {
	key := fmt.Sprintf("%064x", 1)
	s := inFolder(f)
	m := commit(f, s.machine(f), 1)
	text := string(must.Get(json.Marshal(m))(f))
	f.Add(text)
	for _, change := range []string{`"a"`, `"sub/b"`, `"out"`, `"aside"`, `"files"`, m.Outputs["small"].Digest} {
		f.Add(strings.ReplaceAll(text, change, `"../b"`))
		f.Add(strings.ReplaceAll(text, change, `"."`))
	}
	for _, text := range []string{`null`, `{}`, `{"key":"` + key + `"}`,
		`{"key":"` + key + `","outputs":{"out":{"files":[{"name":"a","bytes":9223372036854775807}]}}}`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		top := t.TempDir()
		share := filepath.Join(top, "share")
		manifest := filepath.Join(share, filepath.FromSlash(manifestName(key)))
		must.OK(t, os.MkdirAll(filepath.Dir(manifest), 0o700))
		body := resum([]byte(text))
		must.OK(t, os.WriteFile(manifest, body, 0o600))
		if m, err := artifact.ParseManifest(body, key); err == nil {
			for _, o := range m.Outputs {
				for _, f := range o.Files { // each is in the share, with the wrong bytes
					path := filepath.Join(share, filepath.FromSlash(objectPrefix(o)+f.Name))
					if len(path) < 300 && strings.HasPrefix(path, share) && os.MkdirAll(filepath.Dir(path), 0o700) == nil {
						_ = os.WriteFile(path, []byte("x"), 0o600) // a name that is none of a file stays without
					}
				}
			}
		}
		remote := settings(lang.Remote{Folder: share})
		r := Open(&lang.Site{Remote: &remote}, must.Get(artifact.Open(filepath.Join(top, "store")))(t))
		var ports []string
		if m := r.Find(context.Background(), []string{key})[key]; m != nil {
			ports = m.Ports()
		}
		_ = r.Complete(context.Background(), map[string][]string{key: ports}) // an error is reported
		must.OK(t, filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
			at, _ := filepath.Rel(top, path)
			first, _, _ := strings.Cut(at, "/")
			if err == nil && first != "." && first != "share" && first != "store" {
				t.Errorf("%.1000q writes %s", text, at)
			}
			return err
		}))
		problems, err := r.store.Check()
		if len(problems) > 0 || err != nil {
			t.Errorf("%.1000q leaves the store with %v (%v)", text, problems, err)
		}
		if got, err := r.store.Lookup(key); err == nil && got.Key != key {
			t.Errorf("%.1000q has the key %s", text, got.Key)
		}
	})
}
