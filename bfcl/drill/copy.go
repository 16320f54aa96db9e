package drill

import (
	"math/rand/v2"
	"strings"

	"rcgrpo/bfcl"
)

// slots are the argument names of copy drills, each with the words that may introduce its value in the request.
var slots = []struct {
	name  string
	words []string
}{
	{"file_name", []string{"in", "of", "file"}},
	{"dir_name", []string{"folder", "directory"}},
	{"source", []string{"copy", "move", "rename"}},
	{"destination", []string{"to", "into", "under"}},
	{"content", []string{"with", "text", "write"}},
	{"title", []string{"titled", "called", "about"}},
	{"user", []string{"tell", "for", "send"}},
	{"message", []string{"message", "say"}},
	{"ticket_id", []string{"ticket", "number"}},
}

// copyDrill requests one to three values and expects them verbatim as the arguments of a call
// without a name. Values of several words teach the order of words, which short names do not.
func copyDrill(rng *rand.Rand) *bfcl.Task {
	n := [...]int{1, 2, 2, 3}[rng.IntN(4)]
	var request, args []string
	for _, i := range rng.Perm(len(slots))[:n] {
		slot := slots[i]
		value := copyValue(rng, slot.name)
		request = append(request, slot.words[rng.IntN(len(slot.words))]+" "+value)
		args = append(args, slot.name+"="+value)
	}
	rng.Shuffle(len(args), func(i, j int) { args[i], args[j] = args[j], args[i] })
	return &bfcl.Task{
		Category:      string(Copy),
		Family:        string(Copy),
		Classes:       []string{},
		InitialConfig: []byte("{}"),
		Turns: []bfcl.Turn{{User: strings.Join(request, " ") + ".",
			GroundTruth: []string{"(" + strings.Join(args, ", ") + ")"}}},
	}
}

// copyValue returns a number of two to five digits for a ticket, otherwise one to five words,
// sometimes as a file name.
func copyValue(rng *rand.Rand, slot string) string {
	if slot == "ticket_id" {
		digits := [...]int{10, 100, 1000, 10000}[rng.IntN(4)]
		return number(digits + rng.IntN(9*digits))
	}
	words := make([]string, 1+rng.IntN(5))
	for i := range words {
		words[i] = noun(rng)
	}
	separator := " "
	if rng.IntN(6) == 0 {
		separator = "_"
	}
	value := strings.Join(words, separator)
	if rng.IntN(3) == 0 {
		value += extensions[rng.IntN(len(extensions))]
	}
	return quote(value)
}
