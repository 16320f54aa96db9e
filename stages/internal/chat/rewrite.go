package chat

import (
	"errors"
	"fmt"

	controls "github.com/nikolalohinski/gonja/v2/builtins/control_structures"
	"github.com/nikolalohinski/gonja/v2/nodes"
	"github.com/nikolalohinski/gonja/v2/tokens"
)

// rewriteNodes puts our filters into a parsed template; see python.go.
func rewriteNodes(list []nodes.Node) error {
	for _, n := range list {
		switch n := n.(type) {
		case *nodes.Data, *nodes.Comment:
		case *nodes.Output:
			n.Expression = filtered(rewrite(n.Expression), filterText)
			n.Condition = rewrite(n.Condition)
			if n.Alternative != nil {
				n.Alternative = filtered(rewrite(n.Alternative), filterText)
			}
		case *nodes.ControlStructureBlock:
			if err := rewriteStatement(n.ControlStructure); err != nil {
				return err
			}
		default:
			return fmt.Errorf("line %d: %s is not understood here", n.Position().Line, n)
		}
	}
	return nil
}

func rewriteStatement(s nodes.ControlStructure) error {
	switch s := s.(type) {
	case *controls.IfControlStructure:
		for i, c := range s.Conditions {
			s.Conditions[i] = rewrite(c)
		}
	case *controls.ForControlStructure:
		if s.Recursive {
			return errors.New("a recursive loop is not understood here")
		}
		at := s.ObjectEvaluator.Position()
		s.ObjectEvaluator = filtered(rewrite(s.ObjectEvaluator), filterEach, &nodes.Integer{Location: at, Val: int(literalText(bodiesOf(s)...))})
		s.IfCondition = rewrite(s.IfCondition)
	case *macro:
		for _, p := range s.Kwargs {
			if p.Value != nil {
				p.Value = rewrite(p.Value)
			}
		}
		s.text = literalText(bodiesOf(s)...)
	case *set:
		s.value, s.condition, s.otherwise = rewrite(s.value), rewrite(s.condition), rewrite(s.otherwise)
		if a, ok := s.target.(*nodes.GetAttribute); ok {
			a.Node = rewrite(a.Node)
		}
	}
	for _, b := range bodiesOf(s) {
		if b != nil {
			if err := rewriteNodes(b.Nodes); err != nil {
				return err
			}
		}
	}
	return nil
}

// bodiesOf are what stands within a statement; some may be nil.
func bodiesOf(s nodes.ControlStructure) []*nodes.Wrapper {
	switch s := s.(type) {
	case *controls.IfControlStructure:
		return s.Wrappers
	case *controls.ForControlStructure:
		return []*nodes.Wrapper{s.BodyWrapper, s.EmptyWrapper}
	case *macro:
		return []*nodes.Wrapper{s.Wrapper}
	case *set:
		return []*nodes.Wrapper{s.body}
	case *generation:
		return []*nodes.Wrapper{s.body}
	}
	return nil
}

// filtered is an expression behind a filter of ours.
func filtered(e nodes.Expression, name string, args ...nodes.Expression) nodes.Expression {
	return &nodes.FilteredExpression{Expression: e, Filters: []*nodes.FilterCall{{Token: e.Position(), Name: name, Args: args}}}
}

// rewrite works on the parts of an expression first; nil stays nil.
func rewrite(e nodes.Expression) nodes.Expression {
	switch e := e.(type) {
	case *nodes.Name:
		return filtered(e, filterName, &nodes.String{Location: e.Name, Val: e.Name.Val})
	case *nodes.BinaryExpression:
		e.Left, e.Right = rewrite(e.Left), rewrite(e.Right)
		switch e.Operator.Token.Type {
		case tokens.Addition:
			return filtered(e.Left, filterAdd, e.Right)
		case tokens.Tilde:
			return filtered(e.Left, filterConcat, e.Right)
		case tokens.Multiply:
			return filtered(e.Left, filterTimes, e.Right)
		}
	case *nodes.UnaryExpression:
		e.Term = rewrite(e.Term)
	case *nodes.Negation:
		e.Term = rewrite(e.Term)
	case *nodes.FilteredExpression:
		e.Expression = rewrite(e.Expression)
		for _, f := range e.Filters {
			rewriteArguments(f.Args, f.Kwargs)
		}
	case *nodes.TestExpression:
		e.Expression = rewrite(e.Expression)
		rewriteArguments(e.Test.Args, e.Test.Kwargs)
	case *nodes.GetAttribute:
		e.Node = rewrite(e.Node)
	case *nodes.GetItem:
		e.Node, e.Arg = rewrite(e.Node), rewrite(e.Arg)
	case *nodes.GetSlice:
		e.Node, e.Start, e.End, e.Step = rewrite(e.Node), rewrite(e.Start), rewrite(e.End), rewrite(e.Step)
	case *nodes.Call:
		if a, ok := e.Func.(*nodes.GetAttribute); ok {
			a.Node = rewrite(a.Node)
			e.Parent = a.Node
		}
		rewriteArguments(e.Args, e.Kwargs)
	case *nodes.List:
		rewriteArguments(e.Val, nil)
	case *nodes.Tuple:
		rewriteArguments(e.Val, nil)
	case *nodes.Dict:
		for _, p := range e.Pairs {
			p.Key, p.Value = rewrite(p.Key), rewrite(p.Value)
		}
	}
	return e
}

func rewriteArguments(args []nodes.Expression, named map[string]nodes.Expression) {
	for i, a := range args {
		args[i] = rewrite(a)
	}
	for name, a := range named {
		named[name] = rewrite(a)
	}
}
