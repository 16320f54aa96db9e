package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"

	"rcgrpo/engine/artifact"
)

// api starts a server in the form of Chat Completions for a script and writes site.hcl. The server fails once with the
// API key in its answer, calls the first tool, then yields. The variable API is its address.
//
//	api server                  writes no site.hcl
//	api edit FILE FIELD TEXT    changes a field of the first row of a stored file
//	api absent TEXT             checks that no file of the script contains a text, unpacked or not
func api(ts *testscript.TestScript, neg bool, args []string) {
	switch {
	case len(args) == 4:
		ts.Check(editRow(ts.MkAbs("store"), args[1], args[2], args[3]))
		return
	case len(args) == 2:
		ts.Check(absent(ts.MkAbs("."), args[1]))
		return
	}
	var failed atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Messages []struct{ Role string }
			Tools    []struct{ Function struct{ Name string } }
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.Tools) == 0 {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		if !failed.Swap(true) {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintf(w, `{"error": {"message": "%s"}}`, r.Header.Get("Authorization"))
			return
		}
		message := map[string]any{"role": "assistant", "content": "Done."}
		if last := body.Messages[len(body.Messages)-1]; last.Role == "user" {
			message = map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{"id": "c1",
				"type": "function", "function": map[string]any{"name": body.Tools[0].Function.Name, "arguments": "{}"}}}}
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"model": "model-1", "choices": []any{map[string]any{
			"message": message, "finish_reason": "stop"}}, "usage": map[string]int{"prompt_tokens": 100,
			"completion_tokens": 10}})
	}))
	ts.Defer(server.Close)
	ts.Setenv("API", server.URL)
	if len(args) == 1 {
		return
	}
	ts.Check(os.WriteFile(ts.MkAbs("site.hcl"), fmt.Appendf(nil, `
store { path = "store" }
data {
  bfcl = %q
}
api "OPENAI_API_KEY" {
  prices = { m = [1, 10] }
}
`, benchmark()), 0o600))
}

// benchmark returns the folder of the official data, which may not exist.
func benchmark() string {
	dir, _ := filepath.Abs("../../.deps/bfcl") // fails only without a working directory
	return cmp.Or(os.Getenv("BFCL_DATA"), dir)
}

// absent returns an error if a file below a folder contains a text.
func absent(dir, text string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		if z, packed := gzip.NewReader(bytes.NewReader(content)); err == nil && packed == nil {
			content, err = io.ReadAll(z)
		}
		if err == nil && bytes.Contains(content, []byte(text)) {
			err = fmt.Errorf("%s contains %q", path, text)
		}
		return err
	})
}

// editRow replaces a field of the first row of a file of the store that has it.
func editRow(store, file, field, text string) error {
	paths, err := filepath.Glob(filepath.Join(store, "objects", "*", file))
	if err != nil || len(paths) != 1 {
		return fmt.Errorf("got the files %q (%w)", paths, err)
	}
	var rows []map[string]any
	for row, err := range artifact.ReadRows[map[string]any](paths[0]) {
		if err != nil {
			return err
		}
		rows = append(rows, row)
	}
	if _, ok := rows[0][field]; !ok {
		return fmt.Errorf("the row has no field %s: %v", field, rows[0])
	}
	rows[0][field] = text
	return artifact.WriteRows(filepath.Dir(paths[0]), file, rows)
}
