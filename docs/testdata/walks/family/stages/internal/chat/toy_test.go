package chat

import (
	"slices"
	"testing"

	"rcgrpo/stages/rl"
)

// The layout of the new family is found by the decoder's name and writes what Qwen2.5's writes.
func TestToyLaysOutAsItsTemplate(t *testing.T) {
	layout, err := LayoutOf("toy")
	if err != nil {
		t.Fatal(err)
	}
	toy, err := layout.New(fixtureTokenizer(t, 0), someFunctions, "")
	if err != nil {
		t.Fatal(err)
	}
	like := fixtureChat(t, 0, "")
	tools := []rl.Tool{{Name: "ls"}, {Name: "pwd"}}
	if got, want := toy.Begin("", tools), like.Begin("", tools); !slices.Equal(got, want) {
		t.Errorf("begins with %v, want %v", got, want)
	}
	if got, want := toy.User("Hello", true, rl.TokenNone), like.User("Hello", true, rl.TokenNone); !slices.Equal(
		got,
		want,
	) {
		t.Errorf("a request is %v, want %v", got, want)
	}
}
