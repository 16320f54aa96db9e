package reports

import (
	"slices"
	"strings"
)

// Source says what a value was computed from, so that a reader can compute it again.
type Source struct {
	From []string `json:"from"`           // ports, by address: `stage.eval.arm["SFT"]@1.scores`; `….manifest` for what is recorded about a stage
	Rows string   `json:"rows,omitempty"` // which rows of them: "set test, token high, greedy"; "" for all
	By   string   `json:"by"`             // how: "share of reward 1, Wilson interval"
}

// String is the source in one line: "share of reward 1 — set test, greedy — stage.eval.arm["SFT"]@1,2.scores"; empty for
// the zero Source.
func (s Source) String() string {
	parts := []string{s.By, s.Rows, strings.Join(joinSeeds(s.From), ", ")}
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " — ")
}

// joinSeeds writes addresses that differ by their seed only as one: `stage.sft.warm@1,2.metrics`.
func joinSeeds(addresses []string) []string {
	var joined []string
	at := map[[2]string]int{}
	for _, address := range addresses {
		head, tail, seeded := cutSeed(address)
		if !seeded {
			joined = append(joined, address)
			continue
		}
		seed, port, _ := strings.Cut(tail, ".")
		if i, known := at[[2]string{head, port}]; known {
			before, _, _ := cutLast(joined[i], ".")
			joined[i] = before + "," + seed + "." + port
			continue
		}
		at[[2]string{head, port}] = len(joined)
		joined = append(joined, address)
	}
	return joined
}

// cutSeed cuts an address with a port before and after the @ of its seed; a for_each key may hold an @ too.
func cutSeed(address string) (before, after string, ok bool) {
	before, after, ok = cutLast(address, "@")
	if !ok || strings.ContainsAny(after, `"]`) {
		return address, "", false
	}
	return before, after, true
}

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}

// manifestOf is the source of what is recorded about a stage.
func manifestOf(address string) string { return address + ".manifest" }

// together is the union of what several sources read, in order of appearance.
func together(by, rows string, sources ...Source) Source {
	s := Source{Rows: rows, By: by}
	for _, one := range sources {
		for _, from := range one.From {
			if !slices.Contains(s.From, from) {
				s.From = append(s.From, from)
			}
		}
	}
	return s
}
