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

// program is a shell program with two tasks per set. VARIANT changes it.
const program = `while read -r line; do
id=${line#*'"id":'}; id=${id%%,*}
expert='[[{"name": "add", "arguments": {"n": 1}}]]'
set=train; case $line in *'"set":"test"'*) set=test;; esac
other=b; result='{}'
case $VARIANT in same) other=a;; "no expert") expert=null;; esac
case $line in
*'"method":"hello"'*) test "$VARIANT" = slow && sleep 5
	result='{"episodes": 4, "tools": [{"name": "add"}]}';;
*'"method":"tasks"'*)
	result='{"tasks": [{"id": "'$set'a", "expert": '$expert'}, '
	result=$result'{"id": "'$set$other'", "family": "f", "secret": "'$TOKEN'"}]}'
	;;
*'"method":"reset"'*) test "$VARIANT" = "slow step" && sleep 5
	result='{"user": "Put in one."}'; test "$VARIANT" = differs && result='{"user": "'$$'"}';;
*'"calls":[]'*) result='{"done": true}';;
*'"method":"step"'*) result='{"results": ["ok"]}';;
*'"method":"score"'*) test "$VARIANT" = "slow score" && sleep 5
	result='{"reward": 1}'; test "$VARIANT" = poor && result='{"reward": 0.5}';;
esac
echo '{"jsonrpc": "2.0", "id": '$id', "result": '$result'}'
done
`

// Every setting of a program has an effect on its tasks or its trial.
func TestProgramsGiveTasksAndAreTried(t *testing.T) {
	t.Setenv("TOKEN", "hush")
	folder := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(folder, "shop.sh"), []byte(program), 0o600))
	must.OK(t, os.WriteFile(filepath.Join(folder, "left.out"), nil, 0o600))
	for name, tc := range map[string]struct{ settings, variant, want, log string }{
		"a sound program":          {"", "", "", "trial: 1 experts played twice, with equal results and reward 1"},
		"two processes":            {"processes = 2", "", "", "trial: 1 experts"},
		"fewer tasks than wanted":  {"train = 9", "", "", "the program has 2 tasks for the set train, fewer than the 9"},
		"a family on both sides":   {"", "", "", "warning: 1 test tasks have a family of the training set"},
		"a secret":                 {"secrets = [\"TOKEN\"]", "", "", "trial"},
		"an unknown secret":        {"secrets = [\"NONE_SUCH\"]", "", "no variable NONE_SUCH", ""},
		"answers that differ":      {"", "differs", "", "played twice differs, so equal seeds do not give equal results"},
		"an expert without reward": {"", "poor", "", "the expert of task traina has the reward 0.5"},
		"no expert":                {"", "no expert", "", "the tasks have no expert calls"},
		"the same id twice":        {"", "same", "there are two tasks with the id traina", ""},
		"a slow start":             {"timeouts = { start = \"300ms\" }", "slow", "no answer to hello within 300ms", ""},
		"a slow step":              {"timeouts = { step = \"300ms\" }", "slow step", "no answer to reset within 300ms", ""},
		"a slow score":             {"timeouts = { score = \"300ms\" }", "slow score", "no answer to score within 300ms", ""},
		"another command":          {"command = [\"false\"]", "", "exited with code 1", ""},
		"a folder without program": {fmt.Sprintf("program = dir(%q)", t.TempDir()), "", "has no file", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir, sets, log, err := execute(t, tc.settings, map[string]string{"source": `"command"`,
				"program": fmt.Sprintf("dir(%q, [\"left.out\"])", folder), "command": `["sh", "shop.sh"]`, "train": "2",
				"test": "2", "env": fmt.Sprintf("{ VARIANT = %q }", tc.variant)}, engine.JobSetup{Seed: 1})
			if tc.want != "" {
				must.Match(t, err, tc.want)
				return
			}
			must.OK(t, err)
			must.Contain(t, log, tc.log)
			var ids []string
			for _, port := range []string{"train", "test"} {
				for _, task := range sets[port] {
					ids = append(ids, task.ID)
					// The program has the secret, and its answers with the secret are masked.
					masked := strings.Contains(string(task.Spec), `"***"`)
					if masked != (name == "a secret" && task.Family == "f") || strings.Contains(string(task.Spec), "hush") {
						t.Errorf("task %s: %s", task.ID, task.Spec)
					}
				}
				must.Get(os.Stat(filepath.Join(dir, port, "program", "shop.sh")))(t)
				if _, err := os.Stat(filepath.Join(dir, port, "program", "left.out")); err == nil {
					t.Error("a name that is left out is in the port")
				}
			}
			if got := fmt.Sprint(ids); got != "[traina trainb testa testb]" {
				t.Errorf("got the tasks %s", got)
			}
		})
	}
}

func TestSettingsOfAProgramAreChecked(t *testing.T) {
	const own = "source = \"command\"\nprogram = dir(\".\")\n"
	wantMistakes(t, map[string]string{
		"source = \"command\"":                 "Tasks of a program need its folder",
		own:                                    "here it has none",
		"source = \"bfcl\"\ncommand = [\"x\"]": "it is about your own tasks",
		"source = \"drills\"\ntimeouts {\nstep = \"1s\"\n}": "timeouts.step = ",
		own + "command = [\"x\"]\nskip = 2":                 "skip = 2 has no effect",
		own + "command = [\"x\"]\nprocesses = 0":            "got 0",
		own + "command = [\"x\"]\nprompt = \"merged\"":      "the program writes the requests itself",
	})
}
