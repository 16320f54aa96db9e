package bfcl_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
)

// The digests are those of the official code (bench/bfcl_tools.py).
func TestToolDocumentsEqualTheOfficialOnes(t *testing.T) {
	data := must.Get(bfcl.LoadData(fixtures.Benchmark(t)))(t)
	lines := strings.Split(strings.TrimSpace(string(must.Get(os.ReadFile("testdata/tool_documents.txt"))(t))), "\n")
	for _, line := range lines {
		f := strings.Fields(line)
		class, target, when, want := f[0], f[1], f[2], f[3]
		var names, texts []string
		for _, doc := range data.Docs(class) {
			names = append(names, doc.Name)
		}
		if target == "prompt" {
			texts = []string{must.Get(data.SystemPrompt(names))(t)}
		} else {
			for _, name := range names {
				texts = append(texts, string(must.Get(data.Function(name, target, when == "late"))(t)))
			}
		}
		if got := sha256.Sum256([]byte(strings.Join(texts, "\n"))); hex.EncodeToString(got[:]) != want {
			t.Errorf("%s for %s (%s): other documents; the first is\n%.600s", class, target, when, texts[0])
		}
	}
	if len(lines) != 72 {
		t.Errorf("got %d digests, want 9 for each of 8 classes", len(lines))
	}
	if _, err := data.Function("ls", "telegraph", false); err == nil {
		t.Error("an unknown API was accepted")
	}
	if _, err := data.Function("fly", bfcl.Google, false); err == nil {
		t.Error("an unknown tool was accepted")
	}
}

func TestToolDocumentThatIsNoObjectIsNamedInTheError(t *testing.T) {
	_, err := bfcl.Function([]byte(`[1]`), bfcl.OpenAIChat, false)
	if got, want := fmt.Sprint(err), "tool document: got list, want an object"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
