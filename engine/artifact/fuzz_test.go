package artifact

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// A manifest of another writer of the store is a result, a miss or a problem. No command that reads the store, and no
// collection, reads or removes a file outside it.
func FuzzManifests(f *testing.F) {
	key := strings.Repeat("ab", 32)
	file := FileInfo{Name: "a", Bytes: 1, SHA256: strings.Repeat("0", 64)}
	out := Output{Type: "files", Bytes: 1, Files: []FileInfo{file}, Digest: treeDigest([]FileInfo{file})}
	text := string(must.Get(json.Marshal(&Manifest{Key: key, Outputs: map[string]Output{"out": out}}))(f))
	f.Add(text)
	for _, change := range []string{`"a"`, `"out"`, `"` + out.Digest + `"`, `"` + file.SHA256 + `"`} {
		for _, to := range []string{`"../../../outside"`, `"."`, `"/"`, `""`} {
			f.Add(strings.ReplaceAll(text, change, to))
		}
	}
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, text string) {
		top := t.TempDir()
		s := must.Get(Open(filepath.Join(top, "store")))(t)
		must.OK(t, os.MkdirAll(s.path("results"), 0o700))
		must.OK(t, os.WriteFile(s.manifestPath(key), []byte(text), 0o600))
		outside := filepath.Join(top, "outside")
		must.OK(t, os.WriteFile(outside, []byte("x"), 0o600))
		before := must.Get(os.Stat(outside))(t)
		m, err := s.Lookup(key)
		if err == nil {
			for _, o := range m.objects() {
				if o.Bytes > 0 {
					t.Errorf("%.1000q is a result, and the store has no file of it", text)
				}
			}
		}
		if _, err := s.Check(); err != nil {
			t.Errorf("%.1000q: check: %v", text, err)
		}
		if parsed := new(Manifest); json.Unmarshal([]byte(text), parsed) == nil && validKey(parsed.Key) == nil {
			_, _ = s.Import(*parsed, parsed.Ports(), func(o Output, dir string) error {
				for _, f := range o.Files {
					if path := filepath.Join(dir, filepath.FromSlash(f.Name)); !strings.HasPrefix(path, s.dir+"/staging/") {
						t.Errorf("%.1000q is filled at %s", text, path)
					}
				}
				return fmt.Errorf("the remote store has no file of %s", o.Digest)
			})
		}
		must.OK(t, filepath.WalkDir(top, func(path string, _ fs.DirEntry, err error) error {
			if path != top && path != outside && path != s.dir && !strings.HasPrefix(path, s.dir+"/") {
				t.Errorf("%.1000q makes %s", text, path)
			}
			return err
		}))
		after := must.Get(os.Stat(outside))(t)
		if !after.ModTime().Equal(before.ModTime()) || after.Mode() != before.Mode() || after.Size() != before.Size() {
			t.Errorf("%.1000q changes a file outside the store", text)
		}
	})
}
