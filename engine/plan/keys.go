package plan

import (
	"crypto/sha256"
	"encoding/hex"
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

// keyOf returns the SHA-256 of the canonical JSON of parts, in hexadecimal.
func keyOf(parts artifact.Parts) string {
	sum := sha256.Sum256([]byte(lang.JsonText(parts)))
	return hex.EncodeToString(sum[:])
}

func inputPart(setting string) string { return "input." + setting }
