package bfcl

import (
	"testing"

	"rcgrpo/internal/must"
)

func TestDecodersInvertCallJSON(t *testing.T) {
	for call, want := range map[string]string{
		"ls(a=True)":                           `{"a": true}`,
		"pwd()":                                `{}`,
		"cd('archives')":                       `{"folder": "archives"}`,
		"mean(numbers=[1, 2.5])":               `{"numbers": [1, 2.5]}`,
		`echo(content="it's", file_name=None)`: `{"content": "it's", "file_name": null}`,
	} {
		name, args, err := CallJSON(call)
		if err != nil || string(args) != want {
			t.Errorf("%s: got %s, %v, want %s", call, args, err, want)
			continue
		}
		qwen, err := DecodeQwen("<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": " + string(args) +
			"}\n</tool_call>")
		if err != nil || len(qwen) != 1 {
			t.Fatalf("%s: decoded %v, %v", call, qwen, err)
		}
		again, back, err := CallJSON(qwen[0])
		if err != nil || again != name || string(back) != want {
			t.Errorf("%s: came back as %s", call, qwen[0])
		}
	}
}

func TestErrorsOfCallJSONNameTheReason(t *testing.T) {
	for call, want := range map[string]string{
		"no call":               "not a call",
		"a.b(c=1)":              "not a call",
		"pwd(1)":                "exceeds",
		"cd(folder=pwd())":      "an expression",
		"mean(numbers={1, 2})":  "numbers",
		"mean(numbers=[1e999])": "infinity",
	} {
		_, _, err := CallJSON(call)
		must.Match(t, err, want, call)
	}
}
