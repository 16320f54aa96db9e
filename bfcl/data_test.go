package bfcl

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcgrpo/bench/fixtures"
	"rcgrpo/internal/must"
)

func TestOfficialDataIsTheKnownRelease(t *testing.T) {
	data := official(t)
	if err := data.IsVersion(Version); err != nil {
		t.Error(err)
	}
	if err := data.IsVersion("2025.1.1"); err == nil {
		t.Error("another version was accepted")
	}
	if n := len(data.Tasks()); n == 0 || data.Task("multi_turn_base_0") == nil || data.Task("nothing") != nil {
		t.Errorf("got %d tasks, or a task by id is wrong", n)
	}
	for _, class := range []string{"GorillaFileSystem", "TwitterAPI"} {
		if len(data.Docs(class)) == 0 {
			t.Errorf("%s has no documents", class)
		}
	}
}

// damaged copies the official data with one changed file; an empty file is omitted.
func damaged(t *testing.T, file string, change func(text string) string) string {
	t.Helper()
	from, to := fixtures.Benchmark(t), t.TempDir()
	for _, pattern := range []string{"*.json", "possible_answer/*.json", "multi_turn_func_doc/*.json"} {
		paths := must.Get(filepath.Glob(filepath.Join(from, pattern)))(t)
		for _, path := range paths {
			name, _ := filepath.Rel(from, path)
			raw := must.Get(os.ReadFile(path))(t)
			if filepath.ToSlash(name) == file {
				text := change(string(raw))
				if text == string(raw) {
					t.Fatalf("the change of %s changed nothing", file)
				}
				if text == "" {
					continue
				}
				raw = []byte(text)
			}
			must.OK(t, os.MkdirAll(filepath.Join(to, filepath.Dir(name)), 0o750))
			must.OK(t, os.WriteFile(filepath.Join(to, name), raw, 0o600))
		}
	}
	return to
}

// inLines changes the lines of a text.
func inLines(change func(lines []string) []string) func(string) string {
	return func(text string) string { return strings.Join(change(strings.Split(text, "\n")), "\n") }
}

// changeLine replaces text in one line, counted from 1.
func changeLine(n int, from, to string) func(string) string {
	return inLines(func(lines []string) []string {
		lines[n-1] = strings.Replace(lines[n-1], from, to, 1)
		return lines
	})
}

var withoutLine10 = inLines(func(lines []string) []string { return slices.Delete(lines, 9, 10) })

// Each fault is reported with file, line and field, and removes only its own task.
func TestDamagedDataIsReportedAndTheRestLoads(t *testing.T) {
	const base, answers = "BFCL_v4_multi_turn_base.json", "possible_answer/BFCL_v4_multi_turn_base.json"
	whole := len(official(t).Tasks())
	for name, tc := range map[string]struct {
		file   string
		change func(string) string
		fault  string // file:line: field, and a part of the text
		says   string
		lost   int
	}{
		"truncated line": {base, inLines(func(lines []string) []string {
			lines[4] = lines[4][:200]
			return lines
		}), base + ":5: ", "not JSON", 1},
		"unknown class": {base, changeLine(3, `"involved_classes": ["`, `"involved_classes": ["No`),
			base + ":3: involved_classes[0]: ", "unknown class", 1},
		"missing answer":   {answers, withoutLine10, base + ":10: id: ", "no usable answer", 1},
		"missing question": {base, withoutLine10, answers + ":10: id: ", "not the id of a readable question", 1},
		"wrong turn count": {answers, changeLine(7, `"ground_truth": [`, `"ground_truth": [[], `),
			answers + ":7: ground_truth: ", "as in the question", 1},
		"unknown tool": {answers, changeLine(1, `cd(folder`, `chdir(folder`),
			answers + ":1: ground_truth[0][0]: ", `unknown tool "chdir"`, 1},
		"function of another class": {answers, changeLine(1, `cd(folder='document')`, `get_watchlist()`),
			answers + ":1: ground_truth[0][0]: ", "not an involved class", 1},
		"unknown parameter": {answers, changeLine(1, `cd(folder=`, `cd(directory=`),
			answers + ":1: ground_truth[0][0]: ", `no parameter "directory"`, 1},
		"call that is no call": {answers, changeLine(1, `cd(folder='document')`, `cd(folder='document'`),
			answers + ":1: ground_truth[0][0]: ", "not a call", 1},
		"ground truth of wrong type": {answers, changeLine(1, `"cd(folder='document')"`, `17`),
			answers + ":1: ground_truth[0][0]: ", "want a string", 1},
		"content of wrong type": {base, inLines(func(lines []string) []string {
			before, rest, _ := strings.Cut(lines[0], `"content": "`)
			_, after, _ := strings.Cut(rest, `"}`)
			lines[0] = before + `"content": 5}` + after
			return lines
		}), base + ":1: question[0][0].content: ", "want a string", 1},
		"question of wrong type": {base, changeLine(2, `"question": [[`, `"question": [{}, [`),
			base + ":2: question[0]: ", "want a list of messages", 1},
		"initial_config missing": {base, changeLine(2, `"initial_config"`, `"initial_konfig"`),
			base + ":2: initial_config: ", "missing", 1},
		"scenario that cannot be loaded": {base, changeLine(1, `"contents"`, `"kontents"`),
			base + ":1: initial_config: ", "GorillaFileSystem", 1},
		"duplicate id": {base, inLines(func(lines []string) []string {
			return slices.Insert(lines, 0, lines[0])
		}), base + ":2: id: ", "already in line 1", 0},
		"id of another file": {base, changeLine(6, `"multi_turn_base_5"`, `"multi_turn_miss_param_5"`),
			base + ":6: id: ", "not an id of this file", 1},
		"withheld function of another class": {"BFCL_v4_multi_turn_miss_func.json",
			changeLine(1, `"missed_function": {"3": ["`, `"missed_function": {"3": ["un`),
			"BFCL_v4_multi_turn_miss_func.json:1: missed_function.3[0]: ", "does not belong", 1},
		"reveal in no turn": {"BFCL_v4_multi_turn_miss_func.json",
			changeLine(1, `"missed_function": {"3"`, `"missed_function": {"93"`),
			"BFCL_v4_multi_turn_miss_func.json:1: missed_function.93: ", "not a turn", 1},
		"document of a function that does not exist": {"multi_turn_func_doc/math_api.json",
			changeLine(1, `"name": "`, `"name": "not_`),
			"multi_turn_func_doc/math_api.json:1: name: ", "has no tool", 0},
		"documents missing": {"multi_turn_func_doc/math_api.json", func(string) string { return "" },
			"multi_turn_func_doc/math_api.json: ", "documents the tools of class MathAPI", 0},
		"long-context constant missing": {"long_context.json", func(s string) string {
			return strings.Replace(s, `"MA_5_EXTENSION"`, `"MA_6_EXTENSION"`, 1)
		}, "long_context.json: MA_5_EXTENSION: ", "missing", -1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := damaged(t, tc.file, tc.change)
			data, err := LoadData(dir)
			var faults Faults
			if !errors.As(err, &faults) {
				t.Fatalf("got error %v, want faults", err)
			}
			found := slices.ContainsFunc(faults, func(f Fault) bool {
				line := strings.TrimPrefix(f.Error(), dir+string(filepath.Separator))
				return strings.HasPrefix(line, tc.fault) && strings.Contains(line, tc.says)
			})
			if !found {
				t.Errorf("got faults\n%v\nwant one that begins with %q and says %q", err, tc.fault, tc.says)
			}
			if tc.lost >= 0 && len(data.Tasks()) != whole-tc.lost {
				t.Errorf("got %d tasks, want %d", len(data.Tasks()), whole-tc.lost)
			}
			if data.IsVersion(Version) == nil {
				t.Error("damaged data counts as the known release")
			}
		})
	}
}

func TestErrorOfAMissingFolderNamesMakeBuild(t *testing.T) {
	_, err := LoadData(filepath.Join(t.TempDir(), "none"))
	must.Match(t, err, "make build")
	data, err := LoadData(t.TempDir())
	var faults Faults
	if !errors.As(err, &faults) || data == nil || len(faults) < 5 {
		t.Errorf("an empty folder: got %v, want a fault per missing file", err)
	}
}

func TestAFileThatDoesNotEndIsAFault(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.CopyFS(dir, os.DirFS(fixtures.Benchmark(t))))
	path := filepath.Join(dir, "multi_turn_func_doc", "math_api.json")
	must.OK(t, os.Truncate(path, 1<<40)) // a file of few blocks, whose reading ends the process
	_, err := LoadData(dir)
	must.Match(t, err, "it is no plain file of at most")
}
