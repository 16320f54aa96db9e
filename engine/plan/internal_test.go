package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
)

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
