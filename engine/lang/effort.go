package lang

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
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
	maxPattern   = 1000      // bytes of a regular expression
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

// readsValue names the calls in loops that convert no argument.
var readsValue = []string{"contains", "element", "index", "keys", "length", "lookup"}

// limit replaces the loops, the arguments of functions, the parts of templates, and the operands that are read as a
// whole, in a body by those that count.
func (e *effort) limit(body *hclsyntax.Body) {
	wrap := func(x hclsyntax.Expression, converts bool) hclsyntax.Expression {
		return &counted{&hclsyntax.ParenthesesExpr{Expression: x, SrcRange: x.Range()}, e, converts}
	}
	counting := func(x hclsyntax.Expression) hclsyntax.Expression { return wrap(x, false) }
	converting := func(x hclsyntax.Expression) hclsyntax.Expression { return wrap(x, true) }
	_ = hclsyntax.VisitAll(body, func(n hclsyntax.Node) hcl.Diagnostics {
		switch n := n.(type) {
		case *hclsyntax.ForExpr:
			n.CollExpr, n.ValExpr = counting(n.CollExpr), counting(n.ValExpr)
		case *hclsyntax.FunctionCallExpr:
			if slices.Contains(readsSource, n.Name) {
				return nil
			}
			for i, arg := range n.Args {
				n.Args[i] = wrap(arg, !slices.Contains(readsValue, n.Name))
			}
		case *hclsyntax.BinaryOpExpr:
			n.LHS, n.RHS = converting(n.LHS), converting(n.RHS)
		case *hclsyntax.ConditionalExpr:
			n.TrueResult, n.FalseResult = converting(n.TrueResult), converting(n.FalseResult)
		case *hclsyntax.SplatExpr:
			n.Source = counting(n.Source)
		case *hclsyntax.IndexExpr:
			if _, named := n.Collection.(*hclsyntax.ScopeTraversalExpr); !named {
				n.Collection = counting(n.Collection)
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
	effort   *effort
	converts bool // the value may be converted to another type
}

// Value implements hclsyntax.Expression. Without steps left it evaluates nothing, which ends inner loops.
func (c *counted) Value(ctx *hcl.EvalContext) (cty.Value, hcl.Diagnostics) {
	before := c.effort.spent
	if c.effort.spend(1) != nil {
		return c.effort.check(before, cty.DynamicVal, nil, c.Range())
	}
	val, diags := c.Expression.Value(ctx)
	if c.converts {
		_ = c.effort.spend(conversion(val)) // check reports it
	}
	return c.effort.check(before, val, diags, c.Range())
}

// check looks at the value of an expression with its diagnostics; before are the steps that were spent before it. Too
// many steps are reported once, at the outermost expression that needs them: its diagnostics replace those inside.
func (e *effort) check(before int, v cty.Value, diags hcl.Diagnostics, at hcl.Range) (cty.Value, hcl.Diagnostics) {
	switch err := cmp.Or(e.look(v), e.spend(0)); {
	case err == nil:
		return v, diags
	case errors.Is(err, errHuge):
		return cty.DynamicVal, append(diags, mistake(at, "Number too large", "%s.", upperFirst(err.Error())))
	case before > maxEffort: // reported
		return cty.DynamicVal, nil
	default:
		return cty.DynamicVal, hcl.Diagnostics{mistake(at, "Too many steps", "%s.", upperFirst(err.Error()))}
	}
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

// look spends steps for the elements and the text of a value, inner ones too, each of which a function may read. It
// returns errHuge for a number that is too large.
func (e *effort) look(v cty.Value) error {
	switch v, _ = v.Unmark(); {
	case !v.IsKnown() || v.IsNull():
	case huge(v):
		return errHuge
	case v.Type() == cty.String:
		return e.spend(len(v.AsString()) / stepBytes)
	case v.CanIterateElements():
		e.looked += v.LengthInt()
		if v.Type().IsSetType() { // sorted for each loop over it, and functions loop several times
			e.looked += v.LengthInt() * 3 * stepElements
		}
		if err := e.spend(e.looked / stepElements); err != nil {
			return err
		}
		e.looked %= stepElements
		for it := v.ElementIterator(); it.Next(); {
			key, item := it.Element()
			if err := e.spend(len(text(key)) / stepBytes); err != nil {
				return err
			}
			if item.Type() != cty.String || len(text(item)) >= stepBytes {
				if err := e.look(item); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// conversion returns the steps to convert a tuple or an object to a list, set or map: the types of all elements, inner
// ones too, are compared with each other: those of 10,000 in 1.6 s. Equality costs less, but more than a look.
func conversion(v cty.Value) int {
	n := elementsOf(v)
	return n/8 + n/24*(n/24)
}

func elementsOf(v cty.Value) (n int) {
	if n = length(v); n > 0 {
		for it := v.ElementIterator(); it.Next(); {
			_, item := it.Element()
			n += elementsOf(item)
		}
	}
	return n
}

// length returns the number of elements of a value; 0 for one without.
func length(v cty.Value) int {
	if !v.IsKnown() || v.IsNull() || !v.CanIterateElements() {
		return 0
	}
	return v.LengthInt()
}

// steps returns what a look at a value spends.
func steps(v cty.Value) int {
	var e effort
	_ = e.look(v) // a huge number is an error of its own
	return e.spent
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
		"formatlist": formatted, "indent": indented, "jsondecode": decoded, "csvdecode": separated, "split": separated,
		"distinct": compared, "trim": trimmed, "regex": matched, "regexall": matchedAll, "toset": hashed,
		"setintersection": hashed, "setsubtract": hashed, "setsymmetricdifference": hashed, "setunion": hashed,
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
		bytes += length(list)*len(text(args[0])) + stepBytes*steps(list)
	}
	return bytes / stepBytes, nil
}

// replaced counts a replacement for each occurrence, or for each byte if the pattern is a regular expression.
func replaced(args []cty.Value) (int, error) {
	s, old, by := text(args[0]), text(args[1]), text(args[2])
	if len(old) < 2 || old[0] != '/' || old[len(old)-1] != '/' {
		return (len(s) + strings.Count(s, old)*len(by)) / stepBytes, nil
	}
	n, err := matchedAll([]cty.Value{cty.StringVal(old[1 : len(old)-1]), args[0]})
	return n + (len(s)+1)*len(by)/stepBytes, err
}

// matched counts the instructions of a regular expression for each byte of the text, to which each may be applied.
func matched(args []cty.Value) (int, error) {
	n, err := instructions(args[0])
	return n * (stepBytes + len(text(args[1]))) / stepBytes, err
}

// matchedAll is matched for each match, after which the search starts again. The text behind it was read before.
func matchedAll(args []cty.Value) (int, error) {
	n, err := matched(args)
	return n + n*len(text(args[1]))/stepBytes, err
}

// instructions returns the size of a compiled regular expression: a{1000} has 1000 instructions. The function reports
// an invalid one.
func instructions(pattern cty.Value) (int, error) {
	if len(text(pattern)) > maxPattern {
		return 0, function.NewArgErrorf(0, "a regular expression may have %d bytes", maxPattern)
	}
	parsed, err := syntax.Parse(text(pattern), syntax.Perl)
	if err != nil {
		return 0, nil
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return 0, err
	}
	return len(program.Inst), nil
}

// compared counts a comparison of each element with all.
func compared(args []cty.Value) (int, error) {
	return length(args[0]) * (1 + steps(args[0])), nil
}

// hashed counts the elements of sets, which need as much work as loops.
func hashed(args []cty.Value) (n int, err error) {
	for _, arg := range args {
		n += 8 * length(arg)
	}
	return n, nil
}

// trimmed counts the bytes of a text with which each character is compared.
func trimmed(args []cty.Value) (int, error) {
	return len(text(args[0])) / stepBytes * (len(text(args[1])) / stepBytes), nil
}

// separated counts the parts of a text.
func separated(args []cty.Value) (int, error) {
	if len(args) == 1 { // csvdecode
		return (strings.Count(text(args[0]), ",") + strings.Count(text(args[0]), "\n")) / 2, nil
	}
	return strings.Count(text(args[1]), text(args[0])) / 4, nil
}

func product(args []cty.Value) (int, error) {
	n := 1
	for i, set := range args {
		if n *= max(1, length(set)); n > maxProduct {
			return 0, function.NewArgErrorf(i, "the product may have %d elements", maxProduct)
		}
	}
	return n * len(args), nil
}

var wide = regexp.MustCompile(`%[^a-zA-Z%]*[0-9]{5}`)

// formatted counts the arguments for each verb, and for each element of the longest list.
func formatted(args []cty.Value) (int, error) {
	format := text(args[0])
	if wide.MatchString(format) {
		return 0, function.NewArgErrorf(0, "a width or precision may be at most %d", maxWidth-1)
	}
	verbs, all, times := strings.Count(format, "%"), 0, 1
	for _, arg := range args[1:] {
		all, times = all+1+steps(arg), max(times, length(arg))
	}
	return times * (len(format)/stepBytes + verbs*(maxWidth/stepBytes/10+all)), nil
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
	if depth, _ := nesting.JSON(s); depth > maxDecoding {
		return 0, function.NewArgErrorf(0, "the JSON is nested deeper than %d", maxDecoding)
	}
	if longExponent().MatchString(s) {
		return 0, function.NewArgError(0, errHuge)
	}
	return len(s)/stepBytes + strings.Count(s, ",")/2, nil
}
