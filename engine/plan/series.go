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

// lengthOf returns the value of the setting named by Kind.Length; 0 for a kind without one.
func lengthOf(n *lang.Node, parts artifact.Parts) int {
	if n.Kind.Length == nil {
		return 0
	}
	setting, _ := n.Kind.Length(n.Stage)
	length, _ := strconv.Atoi(parts["settings."+setting])
	return length
}

// ran returns the length that a recorded run of a node made itself, at least 1.
func (p *Plan) ran(n *lang.Node, m *artifact.Manifest) int {
	length := lengthOf(n, m.Parts)
	if m.Begun != "" {
		if begun, err := p.Store.Manifest(m.Begun); err == nil {
			length -= lengthOf(n, begun.Parts)
		}
	}
	return max(1, length)
}

// continuesFrom returns the length of the shorter result from which a run of a node with these parts would resume and a
// text about it, or why it cannot. It returns "" if there is nothing to report.
func continuesFrom(n *lang.Node, store *artifact.Store, parts artifact.Parts, last *artifact.Manifest) (int, string,
	error) {
	key, setting, length, why := Series(n, parts)
	switch {
	case key == "":
		return 0, "", nil
	case why == "":
		s, err := store.Longest(key, length, nil)
		if err != nil || s == nil {
			return 0, "", err
		}
		return s.Length, fmt.Sprintf("continues from %s = %d", setting, s.Length), nil
	case last == nil:
		return 0, "", nil
	}
	if before, _, had, _ := Series(n, last.Parts); before == key && had < length {
		return 0, fmt.Sprintf("from the start, not from %s = %d: %s", setting, had, why), nil
	}
	return 0, "", nil
}
