package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/stat"
)

const RefreshFrom = refreshFrom

// SetBuildID imitates another build of this binary.
func SetBuildID(id string) (restore func()) {
	own := buildID
	buildID = func() string { return id }
	return func() { buildID = own }
}

// Keys are looked up in stores of earlier builds, so the hashed text must not change by a byte.
func TestKeysHashCanonicalJSON(t *testing.T) {
	parts := artifact.Parts{"kind": `"exec"`, "settings.command": `["sh","-c","echo \\"a\\" \\\\ > $out"]`, "": ""}
	for c := range rune(0x300) {
		parts[string(c)] = string([]rune{c, '"', c})
	}
	for _, text := range []string{"\u2028", "\u2029", "\xff\xfe", "日本", "<&>", "\U0001F600"} {
		parts["x"+text] = text
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(map[string]string(parts)); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(bytes.TrimSuffix(text.Bytes(), []byte{'\n'}))
	if got, want := keyOf(parts), hex.EncodeToString(sum[:]); got != want {
		t.Errorf("got %s, want %s, the hash of %s", got, want, text.String())
	}
	const want = "ac271ef40ee280734aa82523dd5b1e6a45314c821621e51b223cb28d0a6c7914" // printf … | sha256sum
	if got := keyOf(artifact.Parts{"kind": `"exec"`, "version": "1"}); got != want {
		t.Errorf(`got %s, want %s, the hash of {"kind":"\"exec\"","version":"1"}`, got, want)
	}
}

// FuzzVerdictLine checks that parsing any line ends with an error at worst.
func FuzzVerdictLine(f *testing.F) {
	f.Add("r 1 2 3 4 - store/nodes/a.json")
	f.Add("s/? 1 -2 3 18446744073709551615 d /base with spaces")
	f.Fuzz(func(t *testing.T, line string) {
		use, state, ok := parseLine(line)
		if !ok || strings.Contains(line, "\n") {
			return
		}
		written := strings.TrimSuffix(string(appendLine(&state, []byte{use}, "/")), "\n")
		again, same, ok := parseLine(written)
		if !ok || again != use || same.Stamp != state.Stamp || same.Digest != state.Digest {
			t.Errorf("%q: got %c %+v, then %c %+v", line, use, state, again, same)
		}
	})
}

// A record is read back as written. Each changed byte and another build or experiment make it invalid.
func TestVerdictRecordRoundTripsOrIsRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "compiled", "r")
	want := verdictFile{Build: "b", Identity: "i", Experiment: "x",
		Counts:   map[Verb]int{UpToDate: 300, Collected: 1},
		Disabled: []string{"d", ""}, Base: "/base", Paths: []string{"/base/x.hcl"},
		sources: []stat.File{{Path: "/base/one", TooRecent: true, Digest: "d", Stamp: stat.Stamp{Size: 1, Mtime: -2,
			Ctime: 3, Inode: 1 << 63}}, {Path: "/basement", Folder: true, Digest: "e"}},
		published: []stat.File{{Path: "/base/two words", Digest: "f"}},
		results:   []stat.File{{Path: "/base/r", Stamp: stat.Stamp{Size: 9}}}}
	record, ok := want.encode()
	if !ok {
		t.Fatal("not encoded")
	}
	if err := writeVerdict(path, record); err != nil {
		t.Fatal(err)
	}
	got, err := readVerdict(path, "b", "i")
	if err != nil {
		t.Fatal(err)
	}
	want.sources[0].Path, want.published[0].Path, want.results[0].Path = "one", "two words", "r"
	if !reflect.DeepEqual(got, &want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	for _, of := range [][2]string{{"another", "i"}, {"b", "another"}} {
		if _, err := readVerdict(path, of[0], of[1]); err == nil {
			t.Errorf("read a record of build b and experiment i as one of %v", of)
		}
	}
	for i := range record {
		bad := slices.Clone(record)
		bad[i] ^= 0x10
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readVerdict(path, "b", "i"); err == nil {
			t.Errorf("read a record with byte %d of %d changed", i, len(record))
		}
	}
	want.sources[0].Path = "two\nlines"
	if _, ok := want.encode(); ok {
		t.Error("a path of two lines was encoded")
	}
}

// A file with the recorded stamp counts as unchanged without being read, unless the stamp is too recent.
func TestRecentStampsAreComparedByContent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "one.txt")
	if err := os.WriteFile(path, []byte("other content"), 0o600); err != nil {
		t.Fatal(err)
	}
	now, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, recent := range []bool{false, true} {
		forged := stat.File{Path: path, Stamp: stat.StampOf(now), Digest: "x", TooRecent: recent}
		if same, _ := unchanged(&forged, 0, "", 0); same == recent {
			t.Errorf("other content, too recent %v: got same %v, want %v", recent, same, !recent)
		}
	}
}
