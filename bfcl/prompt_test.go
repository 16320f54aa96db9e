package bfcl_test

import (
	"strings"
	"testing"

	"rcgrpo/bfcl"
)

// The expected texts are those of the official default_decode_execute_prompting.
func TestRepliesOfModelsWithoutToolCallsAreDecodedAsByTheOfficialCode(t *testing.T) {
	for text, want := range map[string]string{
		`[f(a=1, b='x'), g()]`:             `f(a=1, b='x')|g()`,
		"```\nf(a=[1, None], b={'k': 2})":  `f(a=[1, None], b={'k': 2})`,
		`[f(a={'g': {'x': 1}})]`:           `f(a=g(x=1))`,
		`[f(a=g(x=-1))]`:                   `f(a=g(x=-1))`,
		`[f(1, a=x)]`:                      `f(a='x')`,
		`[m.f(a=(1, 2))]`:                  `m.f(a=(1, 2))`,
		`[]`:                               ``,
		`I cannot.`:                        `error`,
		`[f(a={})]`:                        `error`,
		`[f(a=+5)]`:                        `f(a=-5)`,
		`[1]`:                              `error`,
		`Here you are: [f(a=1)]`:           `error`,
		"[f(a=\"it's\")]":                  `f(a="it's")`,
		`[f(a={'k': {'x': 1}, 'l': 'y'})]`: `f(a={'k': {'x': 1}, 'l': 'y'})`,
	} {
		calls, err := bfcl.DecodePrompt(text)
		got := strings.Join(calls, "|")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%s: got %s, want %s (%v)", text, got, want, err)
		}
	}
}
