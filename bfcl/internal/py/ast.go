package py

import (
	"fmt"
	"strings"
)

// Expr is an expression that Parse supports: *Const, *Name, *Call, *Attribute, *Subscript,
// *ListExpr, *TupleExpr, *SetExpr, *DictExpr or *Sign.
type Expr any

// Const is a literal: None, a bool, a number or a string.
type Const struct{ Value Value }

// Name is an identifier.
type Name struct{ ID string }

// Call is f(args, k=v).
type Call struct {
	Func     Expr
	Args     []Expr
	Keywords []Keyword
}

// Keyword is one k=v of a call, not evaluated (see Argument).
type Keyword struct {
	Name  string
	Value Expr
}

// Attribute is x.name.
type Attribute struct {
	X    Expr
	Name string
}

// Subscript is x[index].
type Subscript struct{ X, Index Expr }

// ListExpr is [a, b].
type ListExpr struct{ Items []Expr }

// TupleExpr is (a, b) or a, b.
type TupleExpr struct{ Items []Expr }

// SetExpr is {a, b}.
type SetExpr struct{ Items []Expr }

// DictExpr is {k: v}.
type DictExpr struct{ Keys, Values []Expr }

// Sign is -x or +x.
type Sign struct {
	Minus bool
	X     Expr
}

// Literal returns the value of an expression that contains only literals: constants, signed numbers
// and containers of them. It returns false for other expressions. Containers are new objects.
func Literal(e Expr) (Value, bool) {
	v, err := Eval(e, nil)
	return v, err == nil
}

// Dump returns one canonical text per expression, independent of its spelling.
func Dump(e Expr) string {
	var b strings.Builder
	dump(&b, e)
	return b.String()
}

func dump(b *strings.Builder, e Expr) {
	all := func(name string, list ...Expr) {
		b.WriteString(name + "(")
		for _, x := range list {
			dump(b, x)
			b.WriteByte(',')
		}
		b.WriteByte(')')
	}
	switch e := e.(type) {
	case *Const:
		fmt.Fprintf(b, "%s %s", TypeName(e.Value), Repr(e.Value))
	case *Name:
		b.WriteString("name " + e.ID)
	case *Call:
		all("call", append([]Expr{e.Func}, e.Args...)...)
		for _, k := range e.Keywords {
			all(k.Name+"=", k.Value)
		}
	case *Attribute:
		all("."+e.Name, e.X)
	case *Subscript:
		all("[]", e.X, e.Index)
	case *ListExpr:
		all("list", e.Items...)
	case *TupleExpr:
		all("tuple", e.Items...)
	case *SetExpr:
		all("set", e.Items...)
	case *DictExpr:
		all("keys", e.Keys...)
		all("values", e.Values...)
	case *Sign:
		all(fmt.Sprintf("minus %v", e.Minus), e.X)
	}
}
