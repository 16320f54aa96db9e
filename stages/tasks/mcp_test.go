package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rcgrpo/engine"
	"rcgrpo/internal/must"
)

// server is an MCP server as a shell program. VARIANT changes it.
const server = `while read -r line; do
id=${line#*'"id":'}; id=${id%%,*}
case $line in
*'"method":"initialize"'*) test "$VARIANT" = slow && sleep 5
	r='{"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}';;
*'"method":"notifications/'*) continue;;
*'"method":"tools/list"'*) r='{"tools": [{"name": "add", "inputSchema": {"type": "object"}}]}';;
*) test "$VARIANT" = "slow step" && sleep 5
	text=$TOKEN; test "$VARIANT" = differs && text=$$
	r='{"content": [{"type": "text", "text": "'$text'"}]}'; test "$VARIANT" = poor && r='{"content": [], "isError": true}'
esac
echo '{"jsonrpc": "2.0", "id": '$id', "result": '$r'}'
done
`

// Every setting of a server has an effect on its tasks or its trial.
func TestServersGiveToolsAndAreTried(t *testing.T) {
	t.Setenv("TOKEN", "hush")
	folder := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(folder, "server.sh"), []byte(server), 0o600))
	for name, text := range map[string]string{
		"train": `{"id": "a", "user": "Add.", "expected": [{"name": "add", "arguments": {"n": 1}}]}`,
		"test":  `{"id": "b", "user": "Add.", "expected": [[{"name": "add", "arguments": {}}]], "family": "f"}`,
		"bare":  `{"id": "c", "user": "Add."}`} {
		must.OK(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	file := func(name string) string { return fmt.Sprintf("file(%q)", filepath.Join(folder, name)) }
	for name, tc := range map[string]struct{ settings, variant, want, log string }{
		"a sound server":      {"", "", "", "trial: 1 experts played twice, with equal results and reward 1"},
		"a test set":          {"test_file = " + file("test"), "", "", "the server has 1 tools"},
		"one id in both sets": {"test_file = " + file("train"), "", "two tasks with the id a", ""},
		"no expected calls":   {"file = " + file("bare"), "", `task c has no "expected"`, ""},
		"a command that scores": {"file = " + file("bare") + "\nscore = [\"echo\", \"{\\\"reward\\\": 1}\"]", "", "",
			"have no expert"},
		"results that differ":       {"", "differs", "", "played twice differs"},
		"calls that fail":           {"", "poor", "", "the expert of task a has the reward 0"},
		"a secret":                  {"secrets = [\"TOKEN\"]", "", "", "trial"},
		"two sessions":              {"processes = 2", "", "", "trial"},
		"a slow start":              {"timeouts = { start = \"300ms\" }", "slow", "no answer to initialize within 300ms", ""},
		"a slow step":               {"timeouts = { step = \"300ms\" }", "slow step", "no answer to tools/call within", ""},
		"another command":           {"command = [\"false\"]", "", "exited with code 1", ""},
		"an address without server": {"url = \"http://127.0.0.1:1/\"\ncommand = []", "", "connection refused", ""},
		"headers": {"url = \"http://127.0.0.1:1/\"\ncommand = []\nheaders = { A = \"NONE_SUCH\" }", "",
			"no variable NONE_SUCH", ""},
	} {
		t.Run(name, func(t *testing.T) {
			rest := map[string]string{"source": `"mcp"`, "file": file("train")}
			if !strings.Contains(tc.settings, "url =") {
				rest["program"], rest["command"] = fmt.Sprintf("dir(%q)", folder), `["sh", "server.sh"]`
				rest["env"] = fmt.Sprintf("{ VARIANT = %q }", tc.variant)
			}
			dir, sets, log, err := execute(t, tc.settings, rest, engine.JobSetup{Seed: 1})
			if tc.want != "" {
				must.Match(t, err, tc.want)
				return
			}
			must.OK(t, err)
			if !strings.Contains(log, tc.log) || strings.Contains(log, "hush") {
				t.Errorf("got the log %q, want it to say %q", log, tc.log)
			}
			for _, task := range sets["train"] {
				if task.Category != "own" || task.Spec == nil {
					t.Errorf("got %+v", task)
				}
			}
			must.Get(os.Stat(filepath.Join(dir, "train", "program", "server.sh")))(t)
		})
	}
}

func TestSettingsOfAServerAreChecked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tasks.jsonl")
	must.OK(t, os.WriteFile(path, nil, 0o600))
	own := fmt.Sprintf("source = \"mcp\"\nfile = file(%q)\n", path)
	wantMistakes(t, map[string]string{
		"source = \"mcp\"": "are in a file",
		own:                "exactly one of both is set",
		own + "command = [\"x\"]\nurl = \"http://x\"":                         "exactly one of both is set",
		own + "url = \"x\"":                                                   "begins with http",
		own + "command = [\"x\"]\ntrain = 3":                                  "the files have all tasks",
		own + "command = [\"x\"]\nheaders = { A = \"B\" }":                    "command starts the server",
		own + "url = \"http://example.com/mcp\"\nheaders = { A = \"TOKEN\" }": "headers are secrets",
		own + "url = \"http://x\"\nenv = { A = \"B\" }":                       "no process starts",
		own + "command = [\"x\"]\ntimeouts = { score = \"2s\" }":              "no command scores",
		"source = \"bfcl\"\nscore = [\"x\"]":                                  "about the tools of an MCP server",
	})
}
