package api

import "rcgrpo/bfcl/internal/py"

// PrepareLong replaces, in place, the constants of long_context.json that occur in replies by
// constants with prepared texts. It only speeds calls up. Call it once after loading.
func PrepareLong(constants map[string]py.Value) {
	for _, name := range []string{"MA_5_EXTENSION", "MA_20_EXTENSION", "CAR_STATUS_METADATA_EXTENSION",
		"PARKING_BRAKE_INSTRUCTION", "INTERMEDIARY_CITIES"} {
		if v, ok := constants[name]; ok {
			constants[name] = frozen(v)
		}
	}
	// Replies append these lists to items of their own, so each item is prepared separately.
	for _, name := range []string{"WATCH_LIST_EXTENSION", "TRANSACTION_HISTORY_EXTENSION", "TECHNOLOGY_EXTENSION",
		"AUTOMOBILE_EXTENSION"} {
		list, ok := constants[name].(*py.List)
		if !ok {
			continue
		}
		items := make([]py.Value, len(list.Items))
		for i, item := range list.Items {
			items[i] = frozen(item)
		}
		constants[name] = py.NewList(items...)
	}
}

func frozen(v py.Value) *py.Frozen {
	if f, ok := v.(*py.Frozen); ok {
		return f
	}
	return py.NewFrozen(v)
}

// require returns an error if one of the named long-context constants is missing.
func (s *Shared) require(names ...string) error {
	for _, name := range names {
		if s == nil || s.Long[name] == nil {
			return py.Raise("ValueError", "the long-context constant %s is missing", name)
		}
	}
	return nil
}

// constant returns a long-context constant for a reply: its prepared form, or a copy.
func (s *Shared) constant(name string) py.Value {
	v := s.Long[name]
	if f, ok := v.(*py.Frozen); ok {
		return f
	}
	return py.Clone(v, nil)
}

// items returns the items of a long-context list for appending to a reply.
func (s *Shared) items(name string) []py.Value {
	list, ok := s.Long[name].(*py.List)
	if !ok || len(list.Items) == 0 {
		return nil
	}
	if _, prepared := list.Items[0].(*py.Frozen); prepared {
		return list.Items
	}
	return list.Clone(nil).Items
}
