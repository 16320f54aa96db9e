package py

import (
	"fmt"
	"strings"
)

// Literal is the value of an expression made of literals only: constants, signed numbers and containers of them, as
// ast.literal_eval reads them. Containers are new objects.
func Literal(e Expr) (Value, bool) {
	switch e := e.(type) {
	case *Const:
		return e.Value, true
	case *Unary:
		c, ok := e.X.(*Const)
		if !ok {
			if inner, nested := e.X.(*Unary); nested && (e.Op == "-" || e.Op == "+") {
				if v, ok := Literal(inner); ok && isNumber(v) {
					return signed(e.Op, v)
				}
			}
			return nil, false
		}
		return signed(e.Op, c.Value)
	case *ListExpr:
		items, ok := literals(e.Items)
		return &List{Items: items}, ok
	case *TupleExpr:
		items, ok := literals(e.Items)
		return Tuple(items), ok
	case *SetExpr:
		items, ok := literals(e.Items)
		if !ok {
			return nil, false
		}
		s := &Set{}
		for _, item := range items {
			if s.Add(item) != nil {
				return nil, false
			}
		}
		return s, true
	case *DictExpr:
		d := MakeDict(len(e.Keys))
		for i := range e.Keys {
			k, ok := Literal(e.Keys[i])
			if !ok {
				return nil, false
			}
			v, ok := Literal(e.Values[i])
			if !ok || d.SetErr(k, v) != nil {
				return nil, false
			}
		}
		return d, true
	}
	return nil, false
}

func signed(op string, v Value) (Value, bool) {
	if _, isBool := v.(bool); isBool || !isNumber(v) {
		return nil, false
	}
	switch op {
	case "-":
		n, err := Neg(v)
		return n, err == nil
	case "+":
		return v, true
	}
	return nil, false
}

func literals(list []Expr) ([]Value, bool) {
	items := make([]Value, 0, len(list))
	for _, e := range list {
		v, ok := Literal(e)
		if !ok {
			return nil, false
		}
		items = append(items, v)
	}
	return items, true
}

// Dump writes an expression in one canonical form, so that two texts of the same expression give one string.
func Dump(e Expr) string {
	var b strings.Builder
	dump(&b, e)
	return b.String()
}

func dump(b *strings.Builder, e Expr) {
	all := func(name string, list ...Expr) {
		b.WriteString(name)
		b.WriteByte('(')
		for _, x := range list {
			dump(b, x)
			b.WriteByte(',')
		}
		b.WriteByte(')')
	}
	switch e := e.(type) {
	case nil:
		b.WriteByte('-')
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
	case *Slice:
		all("slice", e.Low, e.High, e.Step)
	case *ListExpr:
		all("list", e.Items...)
	case *TupleExpr:
		all("tuple", e.Items...)
	case *SetExpr:
		all("set", e.Items...)
	case *DictExpr:
		all("keys", e.Keys...)
		all("values", e.Values...)
	case *Unary:
		all("unary "+e.Op, e.X)
	case *Binary:
		all(e.Op, e.Left, e.Right)
	case *BoolOp:
		all(e.Op, e.Items...)
	case *Comparison:
		all("compare "+strings.Join(e.Ops, " "), append([]Expr{e.First}, e.Rest...)...)
	case *IfExp:
		all("if", e.Cond, e.Then, e.Else)
	case *Starred:
		all("*", e.X)
	case *Unsupported:
		b.WriteString(e.Kind)
	}
}
