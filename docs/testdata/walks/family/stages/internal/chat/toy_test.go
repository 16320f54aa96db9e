package chat

import (
	"strings"
	"testing"
)

// The layout of the new family replaces the template of its folders.
func TestToyLaysOutAsItsTemplate(t *testing.T) {
	template, err := ReadTemplate(t.TempDir(), Settings{Decoder: "toy", Layout: "toy"})
	if err != nil {
		t.Fatal(err)
	}
	toy, err := template.New(fixtureTokenizer(t, 0), someFunctions, "")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := toy.Begin("", nil, "Hello", "")
	if err != nil || !strings.Contains(toy.Text(ids), "You are a toy.") {
		t.Errorf("got %q, %v", toy.Text(ids), err)
	}
}
