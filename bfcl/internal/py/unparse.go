package py

import "strings"

// Unparse writes an expression as Python source, as ast.unparse does.
func Unparse(e Expr) string {
	var b strings.Builder
	unparse(&b, e, 0)
	return b.String()
}

// Levels of binding, loosest first; an operand of a tighter operator goes into parentheses.
const (
	levelTest = iota
	levelOr
	levelAnd
	levelNot
	levelCompare
	levelBits // | ^ & << >> take the next five
	levelSum  = levelBits + 4
	levelTerm = levelSum + 1
	levelSign = levelTerm + 1
	levelPow  = levelSign + 1
	levelAtom = levelPow + 1
)

var binaryLevel = map[string]int{
	"|": levelBits, "^": levelBits + 1, "&": levelBits + 2, "<<": levelBits + 3, ">>": levelBits + 3,
	"+": levelSum, "-": levelSum, "*": levelTerm, "/": levelTerm, "//": levelTerm, "%": levelTerm, "@": levelTerm, "**": levelPow,
}

func exprLevel(e Expr) int {
	switch e := e.(type) {
	case *IfExp:
		return levelTest
	case *BoolOp:
		if e.Op == "or" {
			return levelOr
		}
		return levelAnd
	case *Unary:
		if e.Op == "not" {
			return levelNot
		}
		return levelSign
	case *Comparison:
		return levelCompare
	case *Binary:
		return binaryLevel[e.Op]
	}
	return levelAtom
}

func unparse(b *strings.Builder, e Expr, at int) {
	if exprLevel(e) < at {
		b.WriteByte('(')
		defer b.WriteByte(')')
	}
	list := func(items []Expr) {
		for i, item := range items {
			if i > 0 {
				b.WriteString(", ")
			}
			unparse(b, item, levelTest)
		}
	}
	switch e := e.(type) {
	case *Const:
		if e.Value == Ellipsis {
			b.WriteString("...")
		} else {
			b.WriteString(strings.ReplaceAll(Repr(e.Value), "inf", "1e309"))
		}
	case *Name:
		b.WriteString(e.ID)
	case *Attribute:
		unparse(b, e.X, levelAtom)
		if c, ok := e.X.(*Const); ok && TypeName(c.Value) == "int" {
			b.WriteByte(' ') // 1.x would read as a number
		}
		b.WriteString("." + e.Name)
	case *Call:
		unparse(b, e.Func, levelAtom)
		b.WriteByte('(')
		list(e.Args)
		for i, k := range e.Keywords {
			if i > 0 || len(e.Args) > 0 {
				b.WriteString(", ")
			}
			if k.Name == "" {
				b.WriteString("**")
			} else {
				b.WriteString(k.Name + "=")
			}
			unparse(b, k.Value, levelTest)
		}
		b.WriteByte(')')
	case *Subscript:
		unparse(b, e.X, levelAtom)
		b.WriteByte('[')
		UnparseIndex(b, e.Index)
		b.WriteByte(']')
	case *ListExpr:
		b.WriteByte('[')
		list(e.Items)
		b.WriteByte(']')
	case *TupleExpr:
		b.WriteByte('(')
		list(e.Items)
		if len(e.Items) == 1 {
			b.WriteByte(',')
		}
		b.WriteByte(')')
	case *SetExpr:
		b.WriteByte('{')
		list(e.Items)
		b.WriteByte('}')
	case *DictExpr:
		b.WriteByte('{')
		for i := range e.Keys {
			if i > 0 {
				b.WriteString(", ")
			}
			if e.Keys[i] == nil {
				b.WriteString("**")
			} else {
				unparse(b, e.Keys[i], levelTest)
				b.WriteString(": ")
			}
			unparse(b, e.Values[i], levelTest)
		}
		b.WriteByte('}')
	case *Starred:
		b.WriteByte('*')
		unparse(b, e.X, levelBits)
	case *Unsupported:
		b.WriteString("<" + e.Kind + ">")
	default:
		unparseOperator(b, e)
	}
}

func unparseOperator(b *strings.Builder, e Expr) {
	switch e := e.(type) {
	case *Unary:
		b.WriteString(e.Op)
		if e.Op == "not" {
			b.WriteByte(' ')
			unparse(b, e.X, levelNot)
		} else {
			unparse(b, e.X, levelSign)
		}
	case *Binary:
		l := binaryLevel[e.Op]
		left, right := l, l+1
		if e.Op == "**" {
			left, right = l+1, levelSign
		}
		unparse(b, e.Left, left)
		b.WriteString(" " + e.Op + " ")
		unparse(b, e.Right, right)
	case *BoolOp:
		for i, item := range e.Items {
			if i > 0 {
				b.WriteString(" " + e.Op + " ")
			}
			unparse(b, item, exprLevel(e)+1)
		}
	case *Comparison:
		unparse(b, e.First, levelCompare+1)
		for i, op := range e.Ops {
			b.WriteString(" " + op + " ")
			unparse(b, e.Rest[i], levelCompare+1)
		}
	case *IfExp:
		unparse(b, e.Then, levelOr)
		b.WriteString(" if ")
		unparse(b, e.Cond, levelOr)
		b.WriteString(" else ")
		unparse(b, e.Else, levelTest)
	}
}

// UnparseIndex writes what stands between the brackets of a subscript: a bare tuple, a slice or an expression.
func UnparseIndex(b *strings.Builder, e Expr) {
	switch e := e.(type) {
	case *Slice:
		if e.Low != nil {
			unparse(b, e.Low, levelTest)
		}
		b.WriteByte(':')
		if e.High != nil {
			unparse(b, e.High, levelTest)
		}
		if e.Step != nil {
			b.WriteByte(':')
			unparse(b, e.Step, levelTest)
		}
	case *TupleExpr:
		if len(e.Items) == 0 {
			b.WriteString("()")
		}
		for i, item := range e.Items {
			if i > 0 {
				b.WriteString(", ")
			}
			UnparseIndex(b, item)
		}
		if len(e.Items) == 1 {
			b.WriteByte(',')
		}
	default:
		unparse(b, e, levelTest)
	}
}
