package drill

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"rcgrpo/bfcl"
)

// Form selects the kind of drill.
type Form string

const (
	Copy   Form = "copy"   // one reply that copies the words of the request; no environment
	Single Form = "single" // one turn
	Multi  Form = "multi"  // two to four turns
)

// Tokens returns about how many tokens an expert's trajectory of a form has, with the tokenizer of drills_base.hcl.
func (f Form) Tokens() int { return map[Form]int{Copy: 40, Single: 50, Multi: 130}[f] }

// Set selects the side of the split and the wording.
type Set string

const (
	Train   Set = "train"    // no held-out pair of intents, training wording
	Test    Set = "test"     // at least one held-out pair, training wording
	TestNew Set = "test_new" // at least one held-out pair, held-out wording in every turn
)

// attempts limits the rejection sampling of one drill. A draw is rejected if its state admits no
// further intent or it belongs to the other side of the split. About half of the draws are
// accepted, so the limit is never reached.
const attempts = 10_000

// Generate returns n drills of one form and set. The same rng state gives identical drills; ids are
// prefix and an index ("drill_train" gives drill_train_0, drill_train_1, ...). Copy and single
// drills exist for training only.
func Generate(rng *rand.Rand, form Form, set Set, prefix string, n int) ([]*bfcl.Task, error) {
	if n < 0 {
		return nil, fmt.Errorf("generate drills: got count %d, want at least 0", n)
	}
	if set != Train && set != Test && set != TestNew {
		return nil, fmt.Errorf("generate drills: unknown set %q, want train, test or test_new", set)
	}
	if form != Copy && form != Single && form != Multi {
		return nil, fmt.Errorf("generate drills: unknown form %q, want copy, single or multi", form)
	}
	if form != Multi && set != Train {
		return nil, fmt.Errorf("generate drills: %s drills have no pairs of intents, so there is no set "+
			"%s of them", form, set)
	}
	tasks := make([]*bfcl.Task, 0, n)
	for i := range n {
		task, err := generate(rng, form, set)
		if err != nil {
			return nil, err
		}
		task.ID, task.Number = fmt.Sprintf("%s_%d", prefix, i), i
		tasks = append(tasks, task)
	}
	return tasks, nil
}

func generate(rng *rand.Rand, form Form, set Set) (*bfcl.Task, error) {
	if form == Copy {
		return copyDrill(rng), nil
	}
	// Classes and length are drawn once, so that rejection does not change their distribution.
	classes, turns := drawClasses(rng), 1
	if form == Multi {
		turns = [...]int{2, 2, 3, 3, 4}[rng.IntN(5)]
	}
	for range attempts {
		d := newDraft(rng, classes, set == TestNew)
		if d.fill(turns) && d.belongs(form, set) {
			return d.task()
		}
	}
	return nil, fmt.Errorf("generate drills: no %s drill of the set %s in %d draws", form, set, attempts)
}

// HeldOut reports whether only test drills may contain intent b directly after intent a. It is true
// for about 18 % of the ordered pairs.
func HeldOut(a, b string) bool {
	sum := sha256.Sum256([]byte("drill pair " + a + " " + b))
	return binary.LittleEndian.Uint32(sum[:])%100 < 18
}

// draft is a drill during its generation.
type draft struct {
	rng     *rand.Rand
	heldOut bool // held-out wording
	classes []string
	initial map[string]any // class name -> scenario before the first turn
	files   *fileSystem    // nil if the class is not used
	tickets *ticketDesk
	mail    *mailbox
	intents []string
	turns   []bfcl.Turn
	kind    string // category
}

// mixes are the combinations of classes and their probabilities in per cent.
var mixes = []struct {
	share   int
	classes []string
}{
	{38, []string{"GorillaFileSystem"}},
	{12, []string{"TicketAPI"}},
	{9, []string{"MessageAPI"}},
	{17, []string{"GorillaFileSystem", "MessageAPI"}},
	{17, []string{"GorillaFileSystem", "TicketAPI"}},
	{7, []string{"TicketAPI", "MessageAPI"}},
}

func drawClasses(rng *rand.Rand) []string {
	x := rng.IntN(100)
	for _, mix := range mixes {
		if x -= mix.share; x < 0 {
			return mix.classes
		}
	}
	return mixes[0].classes // unreachable: the probabilities sum to 100
}

func newDraft(rng *rand.Rand, classes []string, heldOut bool) *draft {
	d := &draft{rng: rng, heldOut: heldOut, classes: classes, initial: map[string]any{}, kind: "base"}
	for _, class := range d.classes {
		switch class {
		case "GorillaFileSystem":
			d.files = newFileSystem(rng)
			d.initial[class] = d.files.scenario()
		case "TicketAPI":
			d.tickets = newTicketDesk(rng)
			d.initial[class] = d.tickets.scenario()
		case "MessageAPI":
			d.mail = newMailbox(rng)
			d.initial[class] = d.mail.scenario()
		}
	}
	return d
}

// fill adds turns of one intent each. It returns false if the state admits no intent, or if an
// offered class remains unused.
func (d *draft) fill(turns int) bool {
	used := map[string]bool{}
	for range turns {
		in, made, ok := d.choose()
		if !ok {
			return false
		}
		used[in.class] = true
		d.intents = append(d.intents, in.name)
		d.addTurn(in, made)
	}
	for _, class := range d.classes {
		if turns > 1 && !used[class] {
			return false
		}
	}
	return true
}

// referBack is the probability that a later turn prefers an intent that refers to an earlier one.
const referBack = 0.35

// choose draws an intent that the state admits and applies it to the draft's model of the state.
func (d *draft) choose() (intent, made, bool) {
	later := len(d.turns) > 0 && d.rng.Float64() < referBack
	for _, refers := range []bool{later, false} {
		var fit []intent
		for _, in := range intents() {
			if in.later == refers && slices.Contains(d.classes, in.class) {
				fit = append(fit, in)
			}
		}
		d.rng.Shuffle(len(fit), func(i, j int) { fit[i], fit[j] = fit[j], fit[i] })
		for _, in := range fit {
			if m, ok := in.make(d); ok {
				return in, m, true
			}
		}
	}
	return intent{}, made{}, false
}

// made is an intent with its values: those of the phrasing, and its calls.
type made struct {
	fill  map[string]string
	calls []string
}

// missing is the probability that an intent that may lack its value does: the request omits it, its
// ground-truth turn is empty, and the next turn supplies it.
const missing = 0.27

func (d *draft) addTurn(in intent, m made) {
	d.forget(in)
	if in.vague != "" && d.rng.Float64() < missing {
		d.kind = "miss_param"
		d.turns = append(d.turns,
			bfcl.Turn{User: d.open(in.vague), GroundTruth: []string{}},
			bfcl.Turn{User: replace("The file is {f}.", m.fill), GroundTruth: m.calls})
		return
	}
	phrase := in.phrases[d.rng.IntN(4)]
	if d.heldOut {
		phrase = in.phrases[4]
	}
	d.turns = append(d.turns, bfcl.Turn{User: d.open(replace(phrase, m.fill)), GroundTruth: m.calls})
}

// forget clears "it" after a turn without a file: "it" always means a file of the previous turn.
func (d *draft) forget(in intent) {
	if d.files != nil && in.class != "GorillaFileSystem" {
		d.files.it = ""
	}
}

// open prefixes a phrase with an opener and lowers its first letter (except the word "I").
func (d *draft) open(phrase string) string {
	i := d.rng.IntN(8)
	switch {
	case i >= len(openers):
		return phrase
	case strings.HasPrefix(phrase, "I "):
		return openers[i] + " " + phrase
	default:
		return openers[i] + " " + strings.ToLower(phrase[:1]) + phrase[1:]
	}
}

func replace(phrase string, fill map[string]string) string {
	for name, value := range fill {
		phrase = strings.ReplaceAll(phrase, "{"+name+"}", value)
	}
	return phrase
}

// belongs applies the split.
func (d *draft) belongs(form Form, set Set) bool {
	if form == Single {
		return true
	}
	held := false
	for i := 1; i < len(d.intents); i++ {
		held = held || HeldOut(d.intents[i-1], d.intents[i])
	}
	return held == (set != Train)
}

// task returns the finished drill. Its family is its sequence of intents.
func (d *draft) task() (*bfcl.Task, error) {
	scenario, err := json.Marshal(d.initial)
	if err != nil {
		return nil, fmt.Errorf("generate drills: encode the initial state: %w", err)
	}
	return &bfcl.Task{
		Category:      d.kind,
		Family:        strings.Join(d.intents, " > "),
		Classes:       d.classes,
		InitialConfig: scenario,
		Turns:         d.turns,
	}, nil
}
