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
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/internal/stat"
	"rcgrpo/internal/must"
)

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
	must.OK(t, e.Encode(map[string]string(parts)))
	sum := sha256.Sum256(bytes.TrimSuffix(text.Bytes(), []byte{'\n'}))
	if got, want := keyOf(parts), hex.EncodeToString(sum[:]); got != want {
		t.Errorf("got %s, want %s, the hash of %s", got, want, text.String())
	}
	const want = "ac271ef40ee280734aa82523dd5b1e6a45314c821621e51b223cb28d0a6c7914" // printf … | sha256sum
	if got := keyOf(artifact.Parts{"kind": `"exec"`, "version": "1"}); got != want {
		t.Errorf(`got %s, want %s, the hash of {"kind":"\"exec\"","version":"1"}`, got, want)
	}
}

// A record is read back as written. A record with a changed byte is rejected.
func TestIdleRecordRoundTripsOrIsRejected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "compiled", "r")
	want := idleRecord{Idle: Idle{"x", map[string]int{"up to date": 300, "collected": 1}, []string{"d", ""}},
		Build: "b", Identity: "i", Base: "/base", Paths: []string{"/base/x.hcl"}, Sources: 2}
	want.add("/base/two words", stat.Stamp{Size: 1, Mtime: -2, Ctime: 3, Inode: 1 << 63})
	want.add("/base/folder/", stat.Stamp{Size: 9})
	want.add("/basement", stat.Stamp{})
	lines := []string{"1.-2.3.9223372036854775808 two words", "9.0.0.0 /base/folder/", "0.0.0.0 /basement"}
	if !slices.Equal(want.files, lines) {
		t.Errorf("got lines %q, want %q", want.files, lines)
	}
	must.OK(t, want.write(path))
	got, err := readIdle(path)
	if err != nil || !reflect.DeepEqual(got, &want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	record := must.Get(os.ReadFile(path))(t)
	for i := range record {
		bad := slices.Clone(record)
		bad[i] ^= 0x10
		must.OK(t, os.WriteFile(path, bad, 0o600))
		if _, err := readIdle(path); err == nil {
			t.Errorf("read a record with byte %d of %d changed", i, len(record))
		}
	}
}
