package main

import (
	"os"
	"testing"

	"rcgrpo/internal/must"
)

// Help and docs show the comments of today.
func TestDocumentationIsThatOfTheComments(t *testing.T) {
	want := must.Get(documentation("../.."))(t)
	if got := must.Get(os.ReadFile("../../engine/lang/settings.txt"))(t); string(got) != want {
		t.Error("engine/lang/settings.txt differs from the comments of the settings; run: go generate ./engine/lang")
	}
}
