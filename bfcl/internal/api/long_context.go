package api

import "rcgrpo/bfcl/internal/py"

// require raises an error if one of the named long-context constants is missing.
func (s *Shared) require(names ...string) {
	for _, name := range names {
		if s == nil || s.Long[name] == nil {
			panic(py.Raise("ValueError", "the long-context constant %s is missing", name))
		}
	}
}

// constant returns a long-context constant for a reply, which must not change it.
func (s *Shared) constant(name string) py.Value { return s.Long[name] }

// ownConstant returns a copy of a long-context constant for the state of an instance.
func (s *Shared) ownConstant(name string) py.Value { return py.Clone(s.Long[name], nil) }

// items returns the items of a long-context list, for appending to a reply; nil if the constant is not a list.
func (s *Shared) items(name string) []py.Value {
	list, _ := s.constant(name).(*py.List)
	if list == nil {
		return nil
	}
	return list.Items
}
