package reports

import (
	"bytes"
	"os"
	"testing"
)

// TestSyntheticPage writes the page of invented numbers where $REPORTS_PAGE names a file, for looking at it.
func TestSyntheticPage(t *testing.T) {
	var b bytes.Buffer
	if err := synthetic(3, 200, 200).Page().HTML(&b); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", b.Len())
	if path := os.Getenv("REPORTS_PAGE"); path != "" {
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		b.Reset()
		synthetic(3, 200, 200).Page().Text(&b, 120)
		os.WriteFile(path+".txt", b.Bytes(), 0o644)
		b.Reset()
		synthetic(3, 200, 200).Page().Markdown(&b)
		os.WriteFile(path+".md", b.Bytes(), 0o644)
	}
}
