package plan

import (
	"fmt"
	"maps"
	"strconv"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
)

// Series returns the key of a node without the setting named by Kind.Length, and that setting's value. setting is
// "" for a kind without one; why is the reason why these settings cannot be extended.
func Series(n *lang.Node, parts artifact.Parts) (key, setting string, length int, why string) {
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

// continuesFrom returns the shorter result from which a run of a node with these parts would resume, or why it
// cannot. It returns "" if there is nothing to report.
func continuesFrom(n *lang.Node, store *artifact.Store, parts artifact.Parts, last *artifact.Manifest) (string, error) {
	key, setting, length, why := Series(n, parts)
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
	if before, _, had, _ := Series(n, last.Parts); before == key && had < length {
		return fmt.Sprintf("from the start, not from %s = %d: %s", setting, had, why), nil
	}
	return "", nil
}
