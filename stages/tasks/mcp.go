package tasks

import (
	"context"
	"fmt"
	"net/url"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/bfcl"
	"rcgrpo/engine"
	"rcgrpo/stages/internal/environment"
	"rcgrpo/stages/internal/provider"
)

// checkServer checks the settings of an MCP server.
func (s *settings) checkServer(bad func(bool, string, hcl.Range, string, ...any)) {
	if s.Source != "mcp" {
		return
	}
	bad(s.File == nil || s.File.Dir, "No tasks", s.At["file"],
		"The tasks for the tools of a server are in a file: file = file(\"tasks.jsonl\").")
	bad(s.TestFile != nil && s.TestFile.Dir, "Not a file", s.At["test_file"], "test_file is a file; got a folder.")
	bad((len(s.Command) == 0) == (s.URL == ""), "No server", s.At[""],
		"The server is started by its words, such as command = [\"notes-server\", \"--stdio\"], or has a url; exactly one "+
			"of both is set.")
	u, err := url.Parse(s.URL)
	bad(s.URL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https"), "Not an address",
		s.At["url"], "url begins with http:// or https:// and a host; got %q.", s.URL)
	if len(s.Headers) > 0 && s.URL != "" {
		err := provider.CheckURL(s.URL)
		bad(err != nil, "Address not allowed", s.At["url"], "headers are secrets, and cannot be sent to this url: %v.", err)
	}
	bad(s.Program != nil && !s.Program.Dir, "Not a folder", s.At["program"],
		"program is a folder: program = dir(\"notes\").")
}

// runServer reads the tasks, stores the server and its tools beside them, and tries the expected calls.
func (s *settings) runServer(ctx context.Context, job *engine.Job) error {
	p, dirs, err := s.store(job)
	if err != nil {
		return err
	}
	server, err := environment.OpenServer(ctx, p, bfcl.ProgramRef{Dir: dirs["train"], Processes: s.Processes},
		environment.Options{Scratch: job.Dir, Log: job.Logf})
	if err != nil {
		return err
	}
	defer server.Close()
	job.Logf("the server has %d tools", len(p.Server.Tools))
	sets := map[string][]*bfcl.Task{}
	for _, port := range s.setPorts() {
		if err := p.Save(dirs[port]); err != nil {
			return err
		}
		file := s.File
		if port == "test" {
			file = s.TestFile
		}
		if sets[port], err = server.Tasks(file.Path); err != nil {
			return err
		}
		for _, t := range sets[port] {
			if len(s.Score) == 0 && !environment.HasExpert(t) {
				return fmt.Errorf("%s: task %s has no \"expected\", the calls that earn its reward; give them, or a command "+
					"that scores: score = [WORDS]", file.Path, t.ID)
			}
		}
	}
	return s.finish(ctx, job, server, dirs, sets)
}
