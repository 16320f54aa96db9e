package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"strconv"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
)

// Key returns the hash of everything that determines what a node produces: kind, version, settings with their
// defaults, the seed if the node is stochastic, and the content digest of each input, as returned by digest. ok is
// false while a digest is unknown; parts then lack that input. Names, comments, order, formatting and paths are in no
// key, with one exception: a kind that reads all seeds shows the addresses of its inputs, so they are in its key.
func Key(n *lang.Node, digest func(from *lang.Node, port string) (string, bool)) (key string, parts artifact.Parts, ok bool) {
	parts = artifact.Parts{"kind": lang.JsonText(n.Kind.Name), "version": strconv.Itoa(n.Kind.Version)}
	for _, s := range n.Settings {
		if s.InKey {
			parts["settings."+s.Name] = s.Value
		}
	}
	if n.Stochastic && n.Seed != nil {
		parts["seed"] = strconv.FormatInt(*n.Seed, 10)
	}
	ok = true
	for _, in := range n.Inputs {
		d, known := digest(in.From, in.Ref.Port)
		switch {
		case !known:
			ok = false
		case n.Kind.AcrossSeeds:
			parts[inputPart(in.Setting)] = lang.JsonText([]string{d, in.From.Address, in.Ref.Port})
		default:
			parts[inputPart(in.Setting)] = lang.JsonText(d)
		}
	}
	if !ok {
		return "", parts, false
	}
	return keyOf(parts), parts, true
}

// keyFrom is Key with the results that manifest returns for the inputs; nil: unknown.
func keyFrom(n *lang.Node, manifest func(from *lang.Node) *artifact.Manifest) (key string, parts artifact.Parts, ok bool) {
	return Key(n, func(from *lang.Node, port string) (string, bool) {
		m := manifest(from)
		if m == nil {
			return "", false
		}
		output, ok := m.Outputs[port]
		return output.Digest, ok
	})
}

// keyOf returns the SHA-256 of the canonical JSON of parts, in hexadecimal.
func keyOf(parts artifact.Parts) string {
	sum := sha256.Sum256([]byte(lang.JsonText(parts)))
	return hex.EncodeToString(sum[:])
}

func inputPart(setting string) string { return "input." + setting }

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
