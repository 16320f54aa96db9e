package chat

import (
	"slices"
	"testing"

	"rcgrpo/stages/rl"
)

// The new family finds its layout by the decoder's name and writes what its template renders: here that of Qwen2.5.
func TestToyLaysOutAsItsTemplate(t *testing.T) {
	layout, err := LayoutOf("toy")
	if err != nil {
		t.Fatal(err)
	}
	toy, err := layout.New(fixtureTokenizer(t, 0), fixtureTemplate(t, 0), someFunctions, "")
	if err != nil {
		t.Fatal(err)
	}
	qwen := fixtureChat(t, 0, "")
	tools := []string{"ls", "pwd"}
	if got, want := toy.Begin(tools), qwen.Begin(tools); !slices.Equal(got, want) {
		t.Errorf("begins with %v, want %v", got, want)
	}
	if got, want := toy.User("Hello", true, rl.TokenNone), qwen.User("Hello", true, rl.TokenNone); !slices.Equal(got, want) {
		t.Errorf("a request is %v, want %v", got, want)
	}
}
