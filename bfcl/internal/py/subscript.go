package py

// GetItem returns container[key].
func GetItem(container, key Value) (Value, error) {
	switch c := container.(type) {
	case *Dict:
		return c.Index(key)
	case *List:
		i, err := position(c, key, len(c.Items), "list index out of range")
		if err != nil {
			return nil, err
		}
		return c.Items[i], nil
	case Tuple:
		i, err := position(c, key, len(c), "tuple index out of range")
		if err != nil {
			return nil, err
		}
		return c[i], nil
	case string:
		runes := []rune(c)
		i, err := position(c, key, len(runes), "string index out of range")
		if err != nil {
			return nil, err
		}
		return string(runes[i]), nil
	}
	return nil, Raise("TypeError", "'%s' object is not subscriptable", TypeName(container))
}

// SetItem executes container[key] = v.
func SetItem(container, key, v Value) error {
	switch c := container.(type) {
	case *Dict:
		return c.SetErr(key, v)
	case *List:
		i, err := position(c, key, len(c.Items), "list assignment index out of range")
		if err != nil {
			return err
		}
		c.Items[i] = v
		return nil
	}
	return Raise("TypeError", "'%s' object does not support item assignment", TypeName(container))
}

// position converts the key of a sequence of n items to an index; negative keys count from the end.
func position(sequence, key Value, n int, outside string) (int, error) {
	i, ok := asInt64(key)
	if !ok {
		if TypeName(key) == "int" {
			return 0, Raise("IndexError", "cannot fit 'int' into an index-sized integer")
		}
		if _, text := sequence.(string); text {
			return 0, Raise("TypeError", "string indices must be integers, not '%s'", TypeName(key))
		}
		return 0, Raise("TypeError", "%s indices must be integers or slices, not %s", TypeName(sequence), TypeName(key))
	}
	if i < 0 {
		i += int64(n)
	}
	if i < 0 || i >= int64(n) {
		return 0, Raise("IndexError", "%s", outside)
	}
	return int(i), nil
}
