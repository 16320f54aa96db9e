package browser

import (
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// Every fault of this page is reported; without this test a page without faults would prove nothing.
func TestFaultsOfAPageAreReported(t *testing.T) {
	file := filepath.Join(t.TempDir(), "page.html")
	must.OK(t, os.WriteFile(file, []byte(`<title></title><img src="http://example.org/x.png"><script>
		console.error("said", 7); setTimeout(() => { throw new Error("thrown") });</script>`), 0o600))
	p := Open(t).Open(t, (&url.URL{Scheme: "file", Path: file}).String(), Dark(300, 200), "window.first = 1")
	faults := p.Faults()
	for _, want := range []string{`console: "said" 7`, "thrown", "request: http://example.org/x.png",
		"a request leaves: GET "} {
		if !slices.ContainsFunc(faults, func(f string) bool { return strings.Contains(f, want) }) {
			t.Errorf("no fault contains %q; got %q", want, faults)
		}
	}
	var seen []any
	if p.Eval("[first, innerWidth, matchMedia('(prefers-color-scheme: dark)').matches]", &seen); !slices.Equal(seen,
		[]any{1.0, 300.0, true}) {
		t.Errorf("script, width and scheme: got %v", seen)
	}
	if found := p.Violations(t); len(found) == 0 {
		t.Error("axe-core reports no violation of a page without language, title and image text")
	}
}
