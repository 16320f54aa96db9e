package py

// Argument is one keyword argument of a call, evaluated.
type Argument struct {
	Name  string
	Value Value
}

// Scope resolves names, attributes and calls of an expression.
type Scope interface {
	// Lookup returns the value of a name. The error is a NameError, or Unsupported.
	Lookup(name string) (Value, error)
	// Attribute returns x.name.
	Attribute(x Value, name string) (Value, error)
	// Call returns f(*args, **keywords). It must not retain the slices.
	Call(f Value, args []Value, keywords []Argument) (Value, error)
}

// UnsupportedClass is the exception class of valid Python that this package does not evaluate.
// CPython has no such class.
const UnsupportedClass = "UnsupportedExpression"

// Unsupported returns the error for valid Python outside the supported subset. The subset has literals, and calls whose
// arguments are literals, nested calls, or indices of nested calls.
func Unsupported() error { return Raise(UnsupportedClass, "unsupported expression") }

// Eval returns the value of e. With a nil scope only literals have a value. The error is an
// *Exception.
func Eval(e Expr, s Scope) (Value, error) {
	switch e := e.(type) {
	case *Const:
		return e.Value, nil
	case *ListExpr:
		items, err := evalItems(e.Items, s)
		return &List{Items: items}, err
	case *TupleExpr:
		items, err := evalItems(e.Items, s)
		return Tuple(items), err
	case *SetExpr:
		return evalSet(e, s)
	case *DictExpr:
		return evalDict(e, s)
	case *Sign:
		v, err := Eval(e.X, s)
		if err != nil {
			return nil, err
		}
		if e.Minus {
			return Neg(v)
		}
		return Pos(v)
	}
	if s == nil {
		return nil, Unsupported()
	}
	switch e := e.(type) {
	case *Name:
		return s.Lookup(e.ID)
	case *Call:
		return evalCall(e, s)
	case *Attribute:
		x, err := Eval(e.X, s)
		if err != nil {
			return nil, err
		}
		return s.Attribute(x, e.Name)
	case *Subscript:
		x, err := Eval(e.X, s)
		if err != nil {
			return nil, err
		}
		key, err := Eval(e.Index, s)
		if err != nil {
			return nil, err
		}
		return GetItem(x, key)
	}
	return nil, Unsupported()
}

func evalItems(list []Expr, s Scope) ([]Value, error) {
	if len(list) == 0 {
		return nil, nil
	}
	items := make([]Value, len(list))
	for i, e := range list {
		var err error
		if items[i], err = Eval(e, s); err != nil {
			return nil, err
		}
	}
	return items, nil
}

func evalCall(e *Call, s Scope) (Value, error) {
	f, err := Eval(e.Func, s)
	if err != nil {
		return nil, err
	}
	args, keywords, err := e.Arguments(s)
	if err != nil {
		return nil, err
	}
	return s.Call(f, args, keywords)
}

// Arguments returns the values of the arguments. With a nil scope only literals have a value.
func (e *Call) Arguments(s Scope) (args []Value, keywords []Argument, err error) {
	if args, err = evalItems(e.Args, s); err != nil {
		return nil, nil, err
	}
	keywords = make([]Argument, len(e.Keywords))
	for i, k := range e.Keywords {
		v, err := Eval(k.Value, s)
		if err != nil {
			return nil, nil, err
		}
		keywords[i] = Argument{k.Name, v}
	}
	return args, keywords, nil
}

func evalSet(e *SetExpr, s Scope) (Value, error) {
	items, err := evalItems(e.Items, s)
	if err != nil {
		return nil, err
	}
	set := &Set{}
	for _, item := range items {
		if err := set.Add(item); err != nil {
			return nil, err
		}
	}
	return set, nil
}

func evalDict(e *DictExpr, s Scope) (Value, error) {
	d := MakeDict(len(e.Keys))
	for i, k := range e.Keys {
		key, err := Eval(k, s)
		if err != nil {
			return nil, err
		}
		v, err := Eval(e.Values[i], s)
		if err != nil {
			return nil, err
		}
		if err := d.SetErr(key, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}
