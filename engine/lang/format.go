package lang

import (
	"bytes"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
)

// nestedTooDeeply is the summary of the diagnostics of checkNesting.
const nestedTooDeeply = "Nested too deeply"

// HCL's parser and evaluator are recursive, and a stack overflow ends the process, that of an editor too.
const (
	maxBrackets  = 500  // nesting of brackets, braces and templates
	maxOperators = 5000 // operators of one expression, and directives of templates in a file
)

// Format formats an HCL file. Formatting changes no key. A file with syntax errors is not formatted; the
// diagnostics refer to the given text.
func Format(text []byte, path string) ([]byte, hcl.Diagnostics) {
	if _, diags := parseText(text, path); diags.HasErrors() {
		return nil, diags
	}
	if padded(text) > maxPadded {
		return nil, hcl.Diagnostics{mistake(hcl.Range{Filename: path, Start: hcl.InitialPos, End: hcl.InitialPos},
			"Too many spaces", "The lines before an empty one are aligned with the longest of them, and indented by their "+
				"brackets; in this file that needs more than %d MiB. Put an empty line around the longest lines.", maxPadded>>20)}
	}
	return hclwrite.Format(text), nil
}

// maxPadded bounds the bytes of a formatted file. A megabyte with one long name above many short ones became 25 GB.
const maxPadded = 64 << 20

// padded returns a bound of the bytes of a formatted text: up to an empty line, lines are as long as the longest.
func padded(text []byte) (all int) {
	lines, longest, depth := 0, 0, 0
	for line := range bytes.Lines(text) {
		lines, longest = lines+1, max(longest, len(line)+2*min(depth, maxBrackets))
		if len(bytes.TrimSpace(line)) == 0 {
			all, lines, longest = all+lines*longest, 0, 0
		}
		for _, c := range line {
			depth += bytes.Count([]byte("{[("), []byte{c}) - bytes.Count([]byte("}])"), []byte{c})
		}
		depth = max(0, depth)
	}
	return all + lines*longest
}

func parseText(text []byte, path string) (*hcl.File, hcl.Diagnostics) {
	if d := checkNesting(text, path); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	file, diags := hclsyntax.ParseConfig(text, path, hcl.InitialPos)
	return file, dropFollowUps(diags)
}

// parseExpression parses an expression outside a file, which begins at start.
func parseExpression(text, name string, start hcl.Pos) (hclsyntax.Expression, hcl.Diagnostics) {
	if d := checkNesting([]byte(text), name); d != nil {
		return nil, hcl.Diagnostics{d}
	}
	return hclsyntax.ParseExpression([]byte(text), name, start)
}

// maxCopied bounds the bytes that the parser copies. It joins the lines of a heredoc one by one, which took hours for
// 4 MiB. 10,000 lines of 20 bytes are allowed.
const maxCopied = 2 << 30

// checkNesting reports a text that is too long, the first bracket nested deeper than maxBrackets or the first operator
// beyond maxOperators.
func checkNesting(text []byte, path string) *hcl.Diagnostic {
	if len(text) > MaxSource { // an unsaved text of an editor, or standard input
		return mistake(hcl.Range{Filename: path, Start: hcl.InitialPos, End: hcl.InitialPos}, "Text too long",
			"An HCL file may have %d bytes; this text has %d.", MaxSource, len(text))
	}
	tokens, _ := hclsyntax.LexConfig(text, path, hcl.InitialPos) // the parser reports lexical errors
	depth, round, chain := 0, 0, 0
	directives := 0                     // each may be inside the one before, whatever brackets close between them
	literals, joined, copied := 0, 0, 0 // consecutive pieces of a template, their bytes, bytes that joining them copies
	for _, t := range tokens {
		if t.Type != hclsyntax.TokenStringLit && t.Type != hclsyntax.TokenQuotedLit {
			literals, joined = 0, 0
		}
		switch t.Type {
		case hclsyntax.TokenOParen, hclsyntax.TokenOBrack:
			depth, round, chain = depth+1, round+1, chain+1
		case hclsyntax.TokenTemplateControl:
			depth, directives = depth+1, directives+1
		case hclsyntax.TokenOBrace, hclsyntax.TokenTemplateInterp, hclsyntax.TokenOQuote:
			depth++
		case hclsyntax.TokenCParen, hclsyntax.TokenCBrack:
			depth, round = max(0, depth-1), max(0, round-1)
		case hclsyntax.TokenCBrace, hclsyntax.TokenCQuote:
			depth = max(0, depth-1)
		case hclsyntax.TokenTemplateSeqEnd:
			depth, chain = max(0, depth-1), 0
		case hclsyntax.TokenComma, hclsyntax.TokenEqual:
			chain = 0
		case hclsyntax.TokenNewline:
			if round == 0 {
				chain = 0
			}
		case hclsyntax.TokenNumberLit:
			if hugeText(string(t.Bytes)) {
				return mistake(t.Range, "Number too large", "%s.", upperFirst(errHuge.Error()))
			}
		case hclsyntax.TokenQuotedLit, hclsyntax.TokenStringLit:
			literals, joined = literals+1, joined+len(t.Bytes)
			if copied += joined + 16*literals; copied > maxCopied {
				return mistake(t.Range, "Too many lines", "The lines of the texts in this file are too many. Move this "+
					"text into a file of its own, and read it with file.")
			}
		case hclsyntax.TokenIdent, hclsyntax.TokenComment:
		default:
			chain++
		}
		if depth > maxBrackets {
			return mistake(t.Range, nestedTooDeeply, "Brackets, braces and templates may be nested %d deep; this one is nested "+
				"deeper.", maxBrackets)
		}
		if directives > maxOperators {
			return mistake(t.Range, nestedTooDeeply, "The templates of a file may have %d directives; this one has more.",
				maxOperators)
		}
		if chain > maxOperators {
			return mistake(t.Range, nestedTooDeeply, "An expression may have %d operators; this one has more. Move parts of it "+
				"into a locals block.", maxOperators)
		}
	}
	return nil
}

// dropFollowUps removes syntax errors caused by an earlier one: further errors on the same line, and the same
// error on the next line.
func dropFollowUps(diags hcl.Diagnostics) hcl.Diagnostics {
	var out hcl.Diagnostics
	var last *hcl.Diagnostic
	for _, d := range sortDiagnostics(diags) {
		if last != nil && d.Subject != nil {
			lines := d.Subject.Start.Line - last.Subject.Start.Line
			if lines == 0 {
				continue
			}
			if lines == 1 && d.Summary == last.Summary {
				last = d
				continue
			}
		}
		out = append(out, d)
		if d.Subject != nil {
			last = d
		}
	}
	return out
}

// repeatedKeys reports keys that occur twice in one map. HCL would silently use the last one, and an arm of a
// for_each would disappear.
func repeatedKeys(n hclsyntax.Node) hcl.Diagnostics {
	object, ok := n.(*hclsyntax.ObjectConsExpr)
	if !ok || len(object.Items) < 2 {
		return nil
	}
	var diags hcl.Diagnostics
	first := make(map[string]hcl.Range, len(object.Items))
	for _, item := range object.Items {
		key, keyDiags := item.KeyExpr.Value(nil)
		if keyDiags.HasErrors() || !key.IsKnown() || key.IsNull() || key.Type() != cty.String {
			continue // a computed key
		}
		at, twice := first[key.AsString()]
		if !twice {
			first[key.AsString()] = item.KeyExpr.Range()
			continue
		}
		diags = append(diags, mistake(item.KeyExpr.Range(), "Duplicate key",
			"The map already has the key %q at %s; the second value would replace the first.", key.AsString(), Place(at)))
	}
	return diags
}
