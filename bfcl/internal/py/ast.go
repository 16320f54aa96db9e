package py

// Expr is one Python expression: *Const, *Name, *Call, *Attribute, *Subscript, *Slice, *ListExpr, *TupleExpr, *SetExpr,
// *DictExpr, *Unary, *Binary, *BoolOp, *Comparison, *IfExp, *Starred or *Unsupported.
type Expr any

// Const is a literal: None, a bool, a number, a text, bytes or Ellipsis.
type Const struct{ Value Value }

// Name is an identifier.
type Name struct{ ID string }

// Call is f(args, k=v). A keyword with an empty name is **value.
type Call struct {
	Func     Expr
	Args     []Expr
	Keywords []Keyword
}

// Keyword is one k=v of a call.
type Keyword struct {
	Name  string
	Value Expr
}

// Attribute is x.name.
type Attribute struct {
	X    Expr
	Name string
}

// Subscript is x[index]; the index may be a *Slice.
type Subscript struct{ X, Index Expr }

// Slice is low:high:step; absent parts are nil.
type Slice struct{ Low, High, Step Expr }

// ListExpr is [a, b].
type ListExpr struct{ Items []Expr }

// TupleExpr is (a, b) or, where allowed, a, b.
type TupleExpr struct{ Items []Expr }

// SetExpr is {a, b}.
type SetExpr struct{ Items []Expr }

// DictExpr is {k: v}. A nil key is **v.
type DictExpr struct{ Keys, Values []Expr }

// Unary is op x, op one of "+", "-", "~", "not".
type Unary struct {
	Op string
	X  Expr
}

// Binary is an arithmetic or bit operation.
type Binary struct {
	Op          string
	Left, Right Expr
}

// BoolOp is a chain of "and" or of "or".
type BoolOp struct {
	Op    string
	Items []Expr
}

// Comparison is first op rest[0] op rest[1] ...; ops include "in", "not in", "is", "is not".
type Comparison struct {
	First Expr
	Ops   []string
	Rest  []Expr
}

// IfExp is Then if Cond else Else.
type IfExp struct{ Cond, Then, Else Expr }

// Starred is *x.
type Starred struct{ X Expr }

// Unsupported is valid Python that the benchmark's environment does not evaluate here: comprehensions, lambdas,
// f-strings, assignment expressions.
type Unsupported struct{ Kind string }
