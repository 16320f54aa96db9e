package engine

import (
	"bytes"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// pieceSize is about how many bytes of a long file are parsed at a time. The parser first makes all tokens of its text, in a
// list that takes forty times its size and, as it grows, four times that, so that pieces are quicker and smaller than the
// whole, also on one processor.
const pieceSize = 4 << 10

// parseText is hclsyntax.ParseConfig; it parses long texts in pieces, several at once.
func parseText(text []byte, path string) (*hcl.File, hcl.Diagnostics) {
	if len(text) > 2*pieceSize {
		if file := parsePieces(text, path, pieceSize); file != nil {
			return file, nil
		}
	}
	return hclsyntax.ParseConfig(text, path, hcl.InitialPos)
}

// parsePieces parses pieces of at least size bytes. It returns nil where the text has to be parsed as a whole: with mistakes, and when a cut could be wrong.
// A cut stands behind a line that is `}` and nothing else. Without comments of many lines and heredocs, such a line is
// outside of everything, or the text before it lacks a closing bracket and does not parse.
func parsePieces(text []byte, path string, size int) *hcl.File {
	if bytes.Contains(text, []byte("<<")) || bytes.Contains(text, []byte("/*")) {
		return nil
	}
	type piece struct {
		text  []byte
		start hcl.Pos
		body  *hclsyntax.Body
	}
	var pieces []piece
	at := hcl.InitialPos
	for rest := text; len(rest) > 0; {
		end := len(rest)
		if end > size {
			if i := bytes.Index(rest[size:], []byte("\n}\n")); i >= 0 {
				end = size + i + len("\n}\n")
			}
		}
		pieces = append(pieces, piece{text: rest[:end], start: at})
		at.Line += bytes.Count(rest[:end], []byte{'\n'})
		at.Byte += end
		rest = rest[end:]
	}
	sound := every(len(pieces), 1, func(i int) bool {
		p := &pieces[i]
		file, diags := hclsyntax.ParseConfig(p.text, path, p.start)
		if len(diags) > 0 {
			return false
		}
		var ok bool
		p.body, ok = file.Body.(*hclsyntax.Body)
		return ok && len(p.body.Attributes) == 0 // the same name may stand in two pieces
	})
	if !sound {
		return nil
	}
	whole := &hclsyntax.Body{Attributes: hclsyntax.Attributes{}, SrcRange: pieces[0].body.SrcRange, EndRange: pieces[len(pieces)-1].body.EndRange}
	whole.SrcRange.End = pieces[len(pieces)-1].body.SrcRange.End
	for _, p := range pieces {
		whole.Blocks = append(whole.Blocks, p.body.Blocks...)
	}
	return &hcl.File{Body: whole, Bytes: text}
}
