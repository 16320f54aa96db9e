package stages

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"rcgrpo/engine/enginetest"
	"rcgrpo/engine/lang"
	"rcgrpo/internal/must"
)

// outward are the settings that name something outside: programs, servers, variables and dollars.
var outward = []string{"command", "score", "env", "secrets", "headers", "url", "base_url", "key", "budget", "parallel"}

func TestReachNamesEverythingOutside(t *testing.T) {
	const agent = "agent {\n program = dir(\"x\")\n command = [\"agent command\"]\n env = { A = \"agent env\" }\n " +
		"secrets = [\"AGENT_SECRET\"]\n}\n"
	dir := t.TempDir()
	must.OK(t, os.Mkdir(filepath.Join(dir, "x"), 0o700))
	enginetest.WriteFile(t, filepath.Join(dir, "f"), "")
	enginetest.WriteFile(t, filepath.Join(dir, "x", "f"), "")
	for name, tc := range map[string]struct {
		kind, text string
		want       lang.Reach
	}{
		"exec": {"exec", "command = [\"sh\", \"-c\", \"y\"]\nenv = { A = \"1\" }\n" +
			"secrets = [\"S\"]\noutputs = { o = \"o\" }\n" +
			"inputs = { i = file(\"f\") }", lang.Reach{Programs: [][]string{{"sh", "-c", "y"}}, Env: []string{"A=1"},
			Secrets: []string{"S"}, Files: []string{"f"}}},
		"tasks of a program": {"tasks", "source = \"command\"\nprogram = dir(\"x\")\ncommand = [\"p\", \"q\"]\n" +
			"env = { A = \"1\" }\nsecrets = [\"S\"]", lang.Reach{Programs: [][]string{{"p", "q"}}, Env: []string{"A=1"},
			Secrets: []string{"S"}, Files: []string{"x"}}},
		"tasks of a server and a command that scores": {"tasks", "source = \"mcp\"\nfile = file(\"f\")\n" +
			"url = \"https://a.example/mcp\"\nheaders = { Authorization = \"TOKEN\" }\n" +
			"score = [\"judge\"]\nsecrets = [\"S\"]\n" +
			"env = { A = \"1\" }", lang.Reach{Programs: [][]string{{"judge"}}, Env: []string{"A=1"},
			Secrets: []string{"S", "TOKEN"}, Addresses: []string{"https://a.example/mcp"}, Files: []string{"f"}}},
		"tasks of a started server": {"tasks", "source = \"mcp\"\nfile = file(\"f\")\ncommand = [\"server\"]",
			lang.Reach{Programs: [][]string{{"server"}}, Files: []string{"f"}}},
		"drills": {"tasks", "source = \"drills\"", lang.Reach{}},
		"endpoint": {"endpoint", "api = \"openai\"\nmodel = \"m\"\nbase_url = \"https://b.example\"\nkey = \"GITHUB_TOKEN\"",
			lang.Reach{Addresses: []string{"https://b.example"}, Secrets: []string{"GITHUB_TOKEN"}}},
		"endpoint of a vendor": {"endpoint", "api = \"anthropic\"\nmodel = \"m\"",
			lang.Reach{Addresses: []string{"https://api.anthropic.com"}, Secrets: []string{"ANTHROPIC_API_KEY"}}},
		"eval of an endpoint": {"eval", "policy = stage.endpoint.e.policy\ntasks = [stage.tasks.drills.test]\n" +
			"calls { budget = 5 }", lang.Reach{Paid: true, Budget: 5, Parallel: 8}},
		"rollout of an endpoint": {"rollout", "policy = stage.endpoint.e.policy\ntasks = stage.tasks.drills.test\n" +
			"calls {\n budget = 7\n parallel = 200\n}", lang.Reach{Paid: true, Budget: 7, Parallel: 200}},
		"rollout of an agent": {"rollout", "policy = stage.model.base.checkpoint\ntasks = stage.tasks.drills.test\n" + agent,
			lang.Reach{Programs: [][]string{{"agent command"}}, Env: []string{"A=agent env"},
				Secrets: []string{"AGENT_SECRET"}, Files: []string{"x"}}},
		"training of an agent": {"rc-grpo", "policy = stage.model.base.checkpoint\ntasks = [stage.tasks.drills.train]\n" +
			agent, lang.Reach{Programs: [][]string{{"agent command"}}, Env: []string{"A=agent env"},
			Secrets: []string{"AGENT_SECRET"}, Files: []string{"x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			x, diags := enginetest.Load(t, lang.Registry(Kinds()), drilled+
				"stage \"endpoint\" \"e\" {\napi = \"openai\"\nmodel = \"m\"\n}\n"+
				"stage \""+tc.kind+"\" \"one\" {\n"+strings.NewReplacer(`"f"`, `"`+dir+`/f"`, `"x"`, `"`+dir+`/x"`).
				Replace(tc.text)+"\n}\n")
			if diags.HasErrors() {
				t.Fatal(diags)
			}
			i := slices.IndexFunc(x.Nodes, func(n *lang.Node) bool { return n.Name == "one" })
			got := x.Nodes[i].Reach()
			for i := range got.Files {
				got.Files[i] = must.Get(filepath.Rel(dir, got.Files[i]))(t)
			}
			if lang.JSONText(got) != lang.JSONText(tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

// A kind with such a setting must describe it. The table above has an example of each.
func TestKindsWithOutwardSettingsDescribeThem(t *testing.T) {
	for _, k := range Kinds() {
		stage := k.New()
		var found []string
		eachField(reflect.TypeOf(stage), func(name string) {
			if slices.Contains(outward, name) {
				found = append(found, name)
			}
		})
		if _, describes := stage.(lang.Reacher); describes != (len(found) > 0) {
			t.Errorf("%s has the settings %q, and Reach is implemented: %v", k.Name, found, describes)
		}
	}
}

// eachField calls f with the name of every setting of a struct and of its blocks.
func eachField(t reflect.Type, f func(name string)) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return
	}
	for _, field := range reflect.VisibleFields(t) {
		name, rest, _ := strings.Cut(field.Tag.Get("hcl"), ",")
		switch {
		case name == "" || field.Name == "_":
		case strings.HasPrefix(rest, "block"):
			eachField(field.Type, f)
		default:
			f(name)
		}
	}
}
