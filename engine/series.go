package engine

import (
	"fmt"
	"maps"
	"strconv"

	"rcgrpo/engine/artifact"
)

// series is the key of a node without the setting by which its kind can be extended, and that setting's value. setting
// is "" for a kind without one; why says why these settings cannot be extended.
func (n *Node) series(parts artifact.Parts) (key, setting string, length int, why string) {
	if n.Kind.Length == nil {
		return "", "", 0, ""
	}
	setting, why = n.Kind.Length(n.Stage)
	part := "settings." + setting
	length, err := strconv.Atoi(parts[part])
	if err != nil {
		return "", "", 0, ""
	}
	rest := maps.Clone(parts)
	delete(rest, part)
	return keyOf(rest), setting, length, why
}

// begins says what a run of a node with these parts would begin with: "" for nothing, which needs no word unless the
// address has a shorter result.
func (n *Node) continuesFrom(store *artifact.Store, parts artifact.Parts, last *artifact.Manifest) (string, error) {
	key, setting, length, why := n.series(parts)
	switch {
	case key == "":
		return "", nil
	case why == "":
		s, err := store.Longest(key, length, nil)
		if err != nil || s == nil {
			return "", err
		}
		return fmt.Sprintf("continues from %s = %d", setting, s.Length), nil
	case last == nil:
		return "", nil
	}
	if before, _, had, _ := n.series(last.Parts); before == key && had < length {
		return fmt.Sprintf("from the start, not from %s = %d: %s", setting, had, why), nil
	}
	return "", nil
}
