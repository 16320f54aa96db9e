package engine

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// longText has n bytes or more of blocks in many layouts.
func longText(r *rand.Rand, n int, blocks ...string) string {
	var text strings.Builder
	text.WriteString("experiment {\n}\n")
	for i := 0; i < len(blocks) || text.Len() < n; i++ {
		b := i
		if i >= len(blocks) { // all of them stand there once
			b = r.IntN(len(blocks))
		}
		text.WriteString(strings.ReplaceAll(blocks[b], "$", fmt.Sprint(i)))
	}
	return text.String()
}

// A long file is parsed in pieces, and one with a mistake tells it as ever.
func TestLongFilesAreParsedInPieces(t *testing.T) {
	text := longText(rand.New(rand.NewPCG(1, 2)), 3*pieceSize, "stage \"a\" \"s$\" {\n  list = [1, 2, \"three\"]\n}\n")
	got, diags := parseText([]byte(text), "x.hcl")
	if body := got.Body.(*hclsyntax.Body); len(diags) > 0 || len(body.Blocks) != 1+strings.Count(text, "stage") {
		t.Errorf("got %d blocks, %v", len(body.Blocks), diags)
	}
	text += "stage {{\n}\n"
	_, diags = parseText([]byte(text), "x.hcl")
	if len(diags) == 0 || diags[0].Subject.Start.Line != strings.Count(text, "\n")-1 {
		t.Errorf("got %v, want a mistake on the line before the last", diags)
	}
}

// Parsed in pieces or as a whole, a file means the same and every place in it is the same.
func TestPiecesParseLikeTheWhole(t *testing.T) {
	plain := []string{
		"stage \"a\" \"s$\" {\n  text = \"}\" # }\n  list = [1,\n2]\n}\n", "# }\n", "\n\n", "locals {\n  é$ = { ü = \"ß\" }\n}\n",
		"stage \"a\" \"t$\" {\n  block {\n    x = \"${var.a}\\n}\\n\"\n  }\n}\n", "variable \"v$\" {\r\n}\r\n",
	}
	for name, tc := range map[string]struct {
		blocks []string
		pieces bool
	}{
		"ordinary blocks":         {plain, true},
		"brackets at the margin":  {append(plain, "locals {\nx$ = {\na = 1\n}\nb$ = 2\n}\n", "locals {\nx$ = [{\n}\n]\n}\n"), true},
		"a heredoc with a brace":  {append(plain, "locals {\n  h$ = <<E\n}\nstage {\n}\nE\n}\n"), false},
		"a comment with a brace":  {append(plain, "/*\n}\n*/\n"), false},
		"a mistake":               {append(plain, "stage \"a\" {{\n}\n"), false},
		"attributes between them": {append(plain, "x$ = 1\n"), false},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			cut := 0
			for range 50 {
				text := []byte(longText(r, 1000, tc.blocks...))
				want, diags := hclsyntax.ParseConfig(text, "x.hcl", hcl.InitialPos)
				got := parsePieces(text, "x.hcl", 1+r.IntN(300))
				if got == nil {
					continue
				}
				cut++
				if !reflect.DeepEqual(got.Body, want.Body) || len(diags) > 0 || string(got.Bytes) != string(want.Bytes) {
					t.Errorf("the file differs, or has mistakes: %v\n%s", diags, text)
				}
			}
			if tc.pieces && cut == 0 || !tc.pieces && cut > 0 {
				t.Errorf("parsed in pieces %d times of 50, want some: %v", cut, tc.pieces)
			}
		})
	}
}
