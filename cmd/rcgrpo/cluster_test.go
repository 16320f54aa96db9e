//go:build libtorch

package main

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"rcgrpo/internal/must"
	"rcgrpo/internal/versitygw"
)

// TestSharedResultsPage runs the second part of docs/cluster.md on two machines with a server in place of the provider.
// The second machine executes nothing.
func TestSharedResultsPage(t *testing.T) {
	t.Run("gofakes3", func(t *testing.T) {
		backend := s3mem.New()
		must.OK(t, backend.CreateBucket("results"))
		server := httptest.NewServer(gofakes3.New(backend).Server())
		t.Cleanup(server.Close)
		shareResults(t, server.URL)
	})
	t.Run("versitygw", func(t *testing.T) {
		server, _ := versitygw.Start(t, "results")
		shareResults(t, server)
	})
}

func shareResults(t *testing.T, server string) {
	s := newSession(t, "docs/cluster.md")
	_, part, _ := strings.Cut(s.page, "\n## Share results\n")
	part, _, _ = strings.Cut(part, "\n## ")
	first, second, found := strings.Cut(part, "\n### The second machine\n")
	if !found {
		t.Fatal("the page has no second machine")
	}
	blocks := regexp.MustCompile("(?s)```hcl\n.*?```").FindAllString(part, -1)
	if len(blocks) != 2 {
		t.Fatalf("got %d blocks of hcl, want the site and the experiment", len(blocks))
	}
	for i := range blocks {
		blocks[i] = strings.Trim(blocks[i], "`hcl")
	}
	remote := strings.ReplaceAll(blocks[0], "https://s3.example.org&region=eu", server) // which has another region
	for _, machine := range []string{"first", "second"} {
		s.file(machine+"/site.hcl", "store {\n  path = \"~/store\"\n}\n"+remote)
		s.file(machine+"/study.hcl", blocks[1])
	}
	s.line("env RCGRPO_SITE= AWS_EC2_METADATA_DISABLED=true\nenv HOME=$WORK/first\ncd first")
	s.commands(first, map[string]string{
		"rcgrpo store verify --remote": "stdout 'reads, writes and conditions work'",
		"rcgrpo run study.hcl":         "stdout '^done +report.page'",
		"rcgrpo store push":            "stdout '^2 of 2 results done$'",
		"rcgrpo status study.hcl":      "! stdout 'not pushed'",
	})
	s.line("env HOME=$WORK/second\ncd ../second")
	s.commands(second, map[string]string{
		"rcgrpo plan study.hcl":    "stdout '^fetch .*stage.report.page'",
		"rcgrpo run study.hcl":     "! stdout '^done'\ncmp study.html ../first/study.html",
		"rcgrpo verify study.html": "stdout 'everything follows from the artifacts$'",
		"rcgrpo store fetch":       "stdout '^1 of 1 result done$'",
	})
	s.line("! exec grep -rw secret store study.html")
	s.run("", func(work string) error { return os.MkdirAll(filepath.Join(work, "first", "store"), 0o700) })
}

// commands adds the commands of a part of the page, each with the lines of the script that check it.
func (s *session) commands(part string, checks map[string]string) {
	s.Helper()
	for _, c := range shellCommands(part) {
		if export, ok := strings.CutPrefix(c, "export "); ok {
			s.line("env %s", export)
			continue
		}
		check := checks[c]
		if check == "" {
			s.Errorf("no test checks %q", c)
		}
		s.line("exec %s\n%s", c, check)
	}
}
