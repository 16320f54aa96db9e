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

// Shorter is a result that differs from the one to be made only in a smaller value of the setting that Kind.Extends
// names. A stage that goes on from it makes the same bytes as one that does all by itself.
type Shorter struct {
	Length int    // the setting's value
	State  string // folder that it filled as Job.State
	Key    string // of the result

	open func(port string) (*artifact.Artifact, error)
}

// Open opens one of its ports.
func (s *Shorter) Open(port string) (*artifact.Artifact, error) { return s.open(port) }

// Shorter returns the longest result that the stage can go on from, nil without any.
func (j *Job) Shorter() *Shorter { return j.shorter }

// State returns an empty folder for the state from which a longer run of this stage can go on. It is in no digest, and
// gc drops it first.
func (j *Job) State() (dir string, err error) { return j.state() }

// shorter finds what a performance can go on from.
func (p *performance) shorter(parts artifact.Parts) (*Shorter, error) {
	key, _, length, why := p.Node.series(parts)
	if key == "" || why != "" {
		return nil, nil
	}
	s, err := p.Store.Longest(key, length, p.User)
	if err != nil || s == nil {
		return nil, err
	}
	return &Shorter{s.Length, s.Dir, s.Manifest.Key, func(port string) (*artifact.Artifact, error) { return p.Store.Open(s.Manifest, port) }}, nil
}
