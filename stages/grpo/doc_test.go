package grpo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// The pseudo-code of the package comment names methods and fields that exist, so that a reader can search for them.
func TestThePackageCommentNamesWhatIsThere(t *testing.T) {
	var code strings.Builder
	for _, pattern := range []string{"*.go", "../rl/*.go", "../rl/objective/*.go", "../internal/train/*.go",
		"../internal/lm/*.go", "../rl/blocks/*.go"} {
		for _, path := range must.Get(filepath.Glob(pattern))(t) {
			if path != "doc.go" {
				code.Write(must.Get(os.ReadFile(path))(t))
			}
		}
	}
	comment := string(must.Get(os.ReadFile("doc.go"))(t))
	named := regexp.MustCompile(`\b(training|settings|groupSource|conditioning|recorder|course|updateBatch|collection|` +
		`Trajectory|Objective|Advantage|Trainer|Training|Collector|Schedule)\.([A-Za-z]\w*)`)
	found := named.FindAllStringSubmatch(comment, -1)
	if len(found) < 25 {
		t.Fatalf("the comment has %d names of methods, want at least 25", len(found))
	}
	for _, m := range found {
		method := regexp.MustCompile(`func \(\w+ \*?` + m[1] + `\) ` + m[2] + `\(`)
		field := regexp.MustCompile(`(?m)^\t(\w+, )*` + m[2] + ` +\S`)
		if !method.MatchString(code.String()) && !field.MatchString(code.String()) {
			t.Errorf("the comment names %s, which is not there", m[0])
		}
	}
}
