package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/internal/must"
)

// nvimSession opens x.hcl in Neovim, lets the server of the command in $RCGRPO answer, and writes the answers to $OUT.
const nvimSession = `
local out = {}
vim.cmd('edit x.hcl')
local id = vim.lsp.start_client({ name = 'rcgrpo', cmd = { vim.env.RCGRPO, 'lsp' }, root_dir = vim.fn.getcwd() })
vim.lsp.buf_attach_client(0, id)
vim.wait(60000, function() return #vim.diagnostic.get(0) > 0 end, 5)
out.diagnostics = vim.diagnostic.get(0)

local function ask(method, line, column, more)
  local params = vim.tbl_extend('force', {
    textDocument = { uri = vim.uri_from_bufnr(0) }, position = { line = line, character = column } }, more or {})
  local answers = vim.lsp.buf_request_sync(0, method, params, 60000)
  return answers and answers[id] and answers[id].result
end

local d = vim.diagnostic.get(0)[1]
local actions = ask('textDocument/codeAction', 0, 0, {
  range = d.user_data.lsp.range, context = { diagnostics = { {
    range = { start = { line = d.lnum, character = d.col }, ['end'] = { line = d.end_lnum, character = d.end_col } },
    message = d.message } } } })
if actions and actions[1] then
  vim.lsp.util.apply_workspace_edit(actions[1].edit, 'utf-16')
end
vim.wait(60000, function() return #vim.diagnostic.get(0) == 0 end, 5)
out.left = #vim.diagnostic.get(0)

out.hover = ask('textDocument/hover', 4, 4)
out.definition = ask('textDocument/definition', 10, 33)
vim.lsp.util.apply_text_edits(ask('textDocument/formatting', 0, 0), 0, 'utf-16')
out.text = table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, true), '\n')

vim.api.nvim_buf_set_lines(0, -1, -1, true, { 'stage "exec" "c" {', '  inputs = { x = stage.exec.' })
vim.fn.cursor(vim.fn.line('$'), 1000)
out.completion = ask('textDocument/completion', vim.fn.line('$') - 1, 28)

vim.fn.writefile({ vim.fn.json_encode(out) }, vim.env.OUT)
vim.lsp.stop_client(id)
vim.cmd('qall!')
`

// Debian's Neovim is a client that this project did not write.
func TestNeovimUsesTheLanguageServer(t *testing.T) {
	nvim, err := exec.LookPath("nvim")
	if err != nil {
		t.Skip("nvim is not installed: apt-get install neovim")
	}
	dir := t.TempDir()
	const text = `experiment {}
locals { 漢 = "🎉" }
stage "exec" "a" {
  command = ["true"]
  outputs = { x = "x.txt" }
}
stage "exec" "b" {
  command = ["true"]
  env     = { A = "🎉漢${local.漢}", n = local.漢漢 }
  outputs={y="y.txt"}
  inputs  = { src = stage.exec.a.x }
}
`
	files := map[string]string{"x.hcl": text, "session.lua": nvimSession}
	for name, text := range files {
		must.OK(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	c := exec.CommandContext(t.Context(), nvim, "--headless", "--clean", "-n", "-c", "luafile session.lua")
	c.Dir = dir
	c.WaitDelay = time.Minute
	c.Env = append(os.Environ(), "HOME="+dir, "XDG_STATE_HOME="+dir, "RCGRPO="+commandBinary(t, dir),
		"OUT="+filepath.Join(dir, "out"))
	printed, err := c.CombinedOutput()
	answers, readErr := os.ReadFile(filepath.Join(dir, "out"))
	if err != nil || readErr != nil {
		t.Fatalf("%v, %v\n%s", err, readErr, printed)
	}
	var got struct {
		Diagnostics []struct {
			Lnum, Col int
			Message   string
		}
		Left       int
		Hover      struct{ Contents struct{ Value string } }
		Definition []struct {
			Range struct{ Start struct{ Line int } }
		}
		Text       string
		Completion struct{ Items []struct{ Label string } }
	}
	must.OK(t, json.Unmarshal(answers, &got))
	// Neovim counts columns in bytes.
	line := strings.Split(text, "\n")[8]
	column := strings.Index(line, "local.漢漢")
	isPort := func(it struct{ Label string }) bool { return it.Label == "stage.exec.a.x" }
	for what, ok := range map[string]bool{
		"a diagnostic at local.漢漢": len(got.Diagnostics) == 1 && got.Diagnostics[0].Lnum == 8 &&
			got.Diagnostics[0].Col == column,
		"no diagnostic after the fix": got.Left == 0,
		"a hover with outputs":        strings.Contains(got.Hover.Contents.Value, "**outputs**"),
		"a definition in line 2":      len(got.Definition) == 1 && got.Definition[0].Range.Start.Line == 2,
		"a fixed and formatted text":  strings.Contains(got.Text, "n = local.漢 }\n  outputs = { y = \"y.txt\" }\n"),
		"a completion of a port":      slices.ContainsFunc(got.Completion.Items, isPort),
	} {
		if !ok {
			t.Errorf("want %s, got %s", what, answers)
		}
	}
}
