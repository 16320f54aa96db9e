package main

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"rcgrpo/bench/fixtures"
	"rcgrpo/bfcl"
	need "rcgrpo/internal/must"
)

// The Python client plays ground truths through the command, every 50th task or each $RCGRPO_MCP_EVERY-th. It needs the
// package mcp in $RCGRPO_MCP_PYTHON or in .deps/mcp-python, where .ci/run installs it.
func TestPythonClientOfTheProtocolGetsOurResultsAndVerdicts(t *testing.T) {
	root := fixtures.Root(t)
	python := cmp.Or(os.Getenv("RCGRPO_MCP_PYTHON"), filepath.Join(root, ".deps/mcp-python/bin/python"))
	if exec.Command(python, "-c", "import mcp").Run() != nil {
		t.Skip("there is no Python with the package mcp; see bench/mcp_clients.sh")
	}
	every := need.Get(strconv.Atoi(cmp.Or(os.Getenv("RCGRPO_MCP_EVERY"), "50")))(t)
	folder := fixtures.Benchmark(t)
	data := need.Get(bfcl.LoadData(folder))(t)
	dir := t.TempDir()
	var rows bytes.Buffer
	for i, task := range data.Tasks() {
		if i%every == 0 {
			need.OK(t, json.NewEncoder(&rows).Encode(truth(t, data, task)))
		}
	}
	path := filepath.Join(dir, "truth.jsonl")
	need.OK(t, os.WriteFile(path, rows.Bytes(), 0o600))
	command := commandBinary(t, dir)
	server := exec.Command(command, "mcp", "bfcl", "--data", folder, "--listen", "127.0.0.1:0")
	server.Stderr = os.Stderr
	out := need.Get(server.StdoutPipe())(t)
	need.OK(t, server.Start())
	defer func() {
		need.OK(t, server.Process.Signal(os.Interrupt))
		need.OK(t, server.Wait())
	}()
	url := need.Get(bufio.NewReader(out).ReadString('\n'))(t)
	said, err := exec.Command(python, filepath.Join(root, "bench/mcp_clients.py"), strings.TrimSpace(url), path, command,
		"mcp", "bfcl", "--data", folder, "--task", data.Tasks()[0].ID).CombinedOutput()
	if err != nil || !bytes.Contains(said, []byte("results and verdicts are equal")) {
		t.Fatalf("%v\n%s", err, said)
	}
	t.Logf("%s", said)
}

// mcp drills offers the requests of a generated task, mcp bfcl --classes tools without requests.
func TestToolsOnStandardInputAndOutput(t *testing.T) {
	folder, command := fixtures.Benchmark(t), commandBinary(t, t.TempDir())
	for _, tc := range []struct {
		args      []string
		name      string
		arguments any
		want      string
		tools     []string // on offer, and not on offer
	}{
		{[]string{"drills", "--seed", "3"}, "next_request", nil, " ", []string{"next_request", "mean"}},
		{[]string{"bfcl", "--classes", "MathAPI"}, "add", map[string]int{"a": 1, "b": 2}, `{"result": 3}`,
			[]string{"mean", "next_request"}},
	} {
		server := exec.Command(command, append(append([]string{"mcp"}, tc.args...), "--data", folder)...)
		client := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil)
		s := need.Get(client.Connect(t.Context(), &mcp.CommandTransport{Command: server}, nil))(t)
		got := need.Get(s.CallTool(t.Context(), &mcp.CallToolParams{Name: tc.name, Arguments: tc.arguments}))(t)
		if text := got.Content[0].(*mcp.TextContent).Text; got.IsError || !strings.Contains(text, tc.want) {
			t.Errorf("%v: %s gives %q", tc.args, tc.name, text)
		}
		list := need.Get(s.ListTools(t.Context(), nil))(t)
		for i, name := range tc.tools {
			offered := slices.ContainsFunc(list.Tools, func(t *mcp.Tool) bool { return t.Name == name })
			if offered != (i == 0) {
				t.Errorf("%v: on offer is %s: %v", tc.args, name, offered)
			}
		}
		need.OK(t, s.Close())
	}
}

type truthRow struct {
	ID      string       `json:"id"`
	Turns   []truthTurn  `json:"turns"`
	Verdict bfcl.Verdict `json:"verdict"`
}

type truthTurn struct {
	User     string      `json:"user"`
	Revealed []string    `json:"revealed"`
	Calls    []truthCall `json:"calls"`
}

type truthCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
	Text      string          `json:"text"`
	Error     bool            `json:"error"`
}

// truth plays the ground truth of a task.
func truth(t *testing.T, data *bfcl.Data, task *bfcl.Task) truthRow {
	t.Helper()
	e := need.Get(task.Start(bfcl.Settings{Data: data, Today: bfcl.ReleaseDate, MaxSteps: 1000}))(t)
	row := truthRow{ID: task.ID}
	for _, turn := range task.Turns {
		played := truthTurn{e.User(), append([]string{}, turn.Revealed...), []truthCall{}}
		for _, call := range turn.GroundTruth {
			name, arguments, err := bfcl.CallJSON(call)
			need.OK(t, err)
			o := need.Get(e.Execute([]string{call}))(t)[0]
			played.Calls = append(played.Calls, truthCall{name, arguments, o.Text, o.Exception != ""})
		}
		need.Get(e.Execute(nil))(t)
		row.Turns = append(row.Turns, played)
	}
	row.Verdict = e.Verdict()
	return row
}
