package lang

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"

	"rcgrpo/internal/nesting"
)

// A few lines of HCL can describe a string of a terabyte or a loop of years, and an editor evaluates a file when it is
// opened. So the work of a Load is limited while it is done.
const (
	maxEffort    = 1_000_000 // steps: an element of a loop, a part of a template, the parts of long values that follow
	stepBytes    = 64        // of a string
	stepElements = 16        // of a list or map
	maxProduct   = 1_000_000 // elements of setproduct
	maxWidth     = 10_000    // of format and indent
	maxDecoding  = 100       // nesting of jsondecode
)

// effort counts the steps of a Load.
type effort struct {
	spent  int
	looked int // elements that are no whole step yet
}

var errEffort = errors.New("the expressions of the experiment need too many steps; they may have 1 million in all, " +
	"and 64 bytes of a string are one")

func (e *effort) spend(steps int) error {
	if e.spent += min(steps, maxEffort+1); e.spent > maxEffort {
		return errEffort
	}
	return nil
}

// readsSource names the calls whose arguments are read as they are written: types, and matrix, which takes the order of
// the keys from the file.
var readsSource = []string{"list", "set", "map", "tuple", "object", "optional", "matrix"}

// limit replaces the loops, the arguments of functions and the parts of templates in a body by those that count.
func (e *effort) limit(body *hclsyntax.Body) {
	counting := func(x hclsyntax.Expression) hclsyntax.Expression {
		return &counted{&hclsyntax.ParenthesesExpr{Expression: x, SrcRange: x.Range()}, e}
	}
	_ = hclsyntax.VisitAll(body, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.ForExpr:
			n.CollExpr, n.ValExpr = counting(n.CollExpr), counting(n.ValExpr)
		case *hclsyntax.FunctionCallExpr:
			if slices.Contains(readsSource, n.Name) {
				return nil
			}
			for i, arg := range n.Args {
				n.Args[i] = counting(arg)
			}
		case *hclsyntax.ObjectConsKeyExpr:
			if n.ForceNonLiteral {
				n.Wrapped = counting(n.Wrapped)
			}
		case *hclsyntax.TemplateExpr:
			for i, part := range n.Parts {
				if _, text := part.(*hclsyntax.LiteralValueExpr); !text {
					n.Parts[i] = counting(part)
				}
			}
		}
		return nil
	})
}

// counted is an expression that spends steps. Walks see parentheses, which hide nothing.
type counted struct {
	*hclsyntax.ParenthesesExpr
	effort *effort
}

// Value implements hclsyntax.Expression. Without steps left it evaluates nothing, which ends inner loops.
func (c *counted) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	before := c.effort.spent
	err := c.effort.spend(1)
	if err == nil {
		val, diags := c.Expression.Value(ctx)
		err = c.effort.spend(len(text(val)) / stepBytes)
		if err == nil {
			err = c.effort.look(val)
		}
		if errors.Is(err, errHuge) {
			return cty.DynamicVal, append(diags, mistake(c.Range(), "Number too large", "%s.", upperFirst(err.Error())))
		}
		if err == nil {
			return val, diags
		}
	}
	if before > maxEffort { // reported
		return cty.DynamicVal, nil
	}
	at := c.Range()
	return cty.DynamicVal, hcl.Diagnostics{mistake(at, "Too many steps", "%s.", upperFirst(err.Error()))}
}

// A number such as 1e9999999 is short, but its digits, or the integer, need minutes.
const maxDigits = 1000

var errHuge = fmt.Errorf("a number has at most %d digits, and an exponent of at most three", maxDigits)

// longExponent finds a number with an exponent of four digits in a text, or in JSON.
var longExponent = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`(^|[\s:,\[])-?[0-9.]+[eE][+-]?[0-9]{4,}($|[\s,\]}])`)
})

// hugeText reports whether a number in a text is too large.
func hugeText(s string) bool { return len(s) > maxDigits || longExponent().MatchString(s) }

// huge reports whether a value is a number that is too large.
func huge(v cty.Value) bool {
	if v.Type() != cty.Number || !v.IsKnown() || v.IsNull() {
		return false
	}
	e := v.AsBigFloat().MantExp(nil)
	return e > 4*maxDigits || e < -4*maxDigits
}

// look spends steps for the elements of a value, inner ones too, each of which a function may read. It returns errHuge
// for a number that is too large.
func (e *effort) look(v cty.Value) error {
	switch v, _ = v.Unmark(); {
	case !v.IsKnown() || v.IsNull():
	case huge(v):
		return errHuge
	case v.CanIterateElements():
		e.looked += v.LengthInt()
		if err := e.spend(e.looked / stepElements); err != nil {
			return err
		}
		e.looked %= stepElements
		for it := v.ElementIterator(); it.Next(); {
			if _, item := it.Element(); item.Type() != cty.String {
				if err := e.look(item); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// bounded limits the functions whose results can be much larger than their arguments, and those that evaluate their
// arguments twice.
func (e *effort) bounded(all map[string]function.Function) {
	for name, f := range all {
		all[name] = guarded(f, func(args []cty.Value) error {
			for i, arg := range args {
				if err := e.look(arg); err != nil { // a number may be converted from a text
					return function.NewArgError(i, err)
				}
			}
			return nil
		})
	}
	for name, steps := range map[string]func(args []cty.Value) (int, error){
		"can": one, "try": one, "join": joined, "replace": replaced, "setproduct": product, "format": formatted,
		"formatlist": formatted, "indent": indented, "jsondecode": decoded,
	} {
		all[name] = guarded(all[name], func(args []cty.Value) error {
			n, err := steps(args)
			if err == nil {
				err = e.spend(n)
			}
			return err
		})
	}
}

func one([]cty.Value) (int, error) { return 1, nil }

func joined(args []cty.Value) (int, error) {
	bytes := 0
	for _, list := range args[1:] {
		if !list.IsKnown() || list.IsNull() {
			continue
		}
		for it := list.ElementIterator(); it.Next(); {
			_, v := it.Element()
			bytes += len(text(args[0])) + len(text(v))
		}
	}
	return bytes / stepBytes, nil
}

// replaced counts a replacement for each occurrence, or for each byte if the pattern is a regular expression.
func replaced(args []cty.Value) (int, error) {
	s, old, by := text(args[0]), text(args[1]), text(args[2])
	n := len(s) + 1
	if len(old) < 2 || old[0] != '/' || old[len(old)-1] != '/' {
		n = strings.Count(s, old)
	}
	return (len(s) + n*len(by)) / stepBytes, nil
}

func product(args []cty.Value) (int, error) {
	n := 1
	for i, set := range args {
		if set.IsKnown() && !set.IsNull() && set.CanIterateElements() {
			if n *= set.LengthInt(); n > maxProduct {
				return 0, function.NewArgErrorf(i, "the product may have %d elements", maxProduct)
			}
		}
	}
	return n * len(args), nil
}

var wide = regexp.MustCompile(`%[^a-zA-Z%]*[0-9]{5}`)

func formatted(args []cty.Value) (int, error) {
	if wide.MatchString(text(args[0])) {
		return 0, function.NewArgErrorf(0, "a width or precision may be at most %d", maxWidth-1)
	}
	return strings.Count(text(args[0]), "%") * maxWidth / stepBytes / 10, nil
}

func indented(args []cty.Value) (int, error) {
	n := args[0]
	if n.IsKnown() && !n.IsNull() && n.GreaterThan(cty.NumberIntVal(maxWidth)).True() {
		return 0, function.NewArgErrorf(0, "an indentation may be at most %d", maxWidth)
	}
	if !n.IsKnown() || n.IsNull() {
		return 0, nil
	}
	width, _ := n.AsBigFloat().Int64()
	return max(0, int(width)) * strings.Count(text(args[1]), "\n") / stepBytes, nil
}

// decoded bounds the nesting: each level is part of the types of all that surround it.
func decoded(args []cty.Value) (int, error) {
	s := text(args[0])
	if nesting.JSON(s) > maxDecoding {
		return 0, function.NewArgErrorf(0, "the JSON is nested deeper than %d", maxDecoding)
	}
	if longExponent().MatchString(s) {
		return 0, function.NewArgError(0, errHuge)
	}
	return len(s) / stepBytes, nil
}
