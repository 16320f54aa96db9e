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

// Form selects the length of a drill, and whether it has an environment.
type Form string

const (
	Copy   Form = "copy"   // one reply that copies the words of the request; no environment
	Single Form = "single" // one turn
	Multi  Form = "multi"  // two to four turns
)

// Tokens estimates the number of tokens of an expert's trajectory of this form, with the tokenizer of drills_base.hcl.
func (f Form) Tokens() int { return map[Form]int{Copy: 40, Single: 50, Multi: 130}[f] }

// Set selects the side of the split (HeldOut) and the wording.
type Set string

const (
	Train   Set = "train"    // no held-out pair of intents, training wording
	Test    Set = "test"     // at least one held-out pair, training wording
	TestNew Set = "test_new" // at least one held-out pair, held-out wording in every turn
)

// maxDraws limits the rejection sampling of one drill. A draw is rejected if its state admits no
// further intent or it belongs to the other side of the split. About half of the draws are
// accepted, so the limit is never reached.
const maxDraws = 10_000

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

// generate returns a drill without id and number.
func generate(rng *rand.Rand, form Form, set Set) (*bfcl.Task, error) {
	if form == Copy {
		return copyDrill(rng), nil
	}
	// Classes and length are drawn once, so that rejection does not change their distribution.
	classes, turns := drawClasses(rng), 1
	if form == Multi {
		turns = [...]int{2, 2, 3, 3, 4}[rng.IntN(5)]
	}
	for range maxDraws {
		d := newDraft(rng, classes, set == TestNew)
		if d.addTurns(turns) && d.belongs(form, set) {
			return d.task()
		}
	}
	return nil, fmt.Errorf("generate drills: no %s drill of the set %s in %d draws", form, set, maxDraws)
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
	heldOut bool // the requests have the held-out wording
	classes []string
	initial map[string]any // class name -> scenario before the first turn

	// The state after the turns so far; nil if the drill does not use the class.
	files   *fileSystem
	tickets *ticketDesk
	mail    *mailbox

	intents  []string // names of the intents so far
	turns    []bfcl.Turn
	category string
}

// mixes are the combinations of classes of a drill.
var mixes = []struct {
	percent int // probability
	classes []string
}{
	{38, []string{"GorillaFileSystem"}},
	{12, []string{"TicketAPI"}},
	{9, []string{"MessageAPI"}},
	{17, []string{"GorillaFileSystem", "MessageAPI"}},
	{17, []string{"GorillaFileSystem", "TicketAPI"}},
	{7, []string{"TicketAPI", "MessageAPI"}},
}

// drawClasses draws the classes of a drill from mixes.
func drawClasses(rng *rand.Rand) []string {
	x := rng.IntN(100)
	for _, mix := range mixes {
		if x -= mix.percent; x < 0 {
			return mix.classes
		}
	}
	return mixes[0].classes // unreachable: the probabilities sum to 100
}

// newDraft returns a draft without turns, with random initial states of the classes.
func newDraft(rng *rand.Rand, classes []string, heldOut bool) *draft {
	d := &draft{rng: rng, heldOut: heldOut, classes: classes, initial: map[string]any{}, category: "base"}
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

// addTurns adds as many intents as turns says. Each has one turn or, if its request omits a value, two. It returns
// false if the state admits no intent, or if a drill of several turns leaves one of its classes unused.
func (d *draft) addTurns(turns int) bool {
	used := map[string]bool{}
	for range turns {
		in, drawn, ok := d.choose()
		if !ok {
			return false
		}
		used[in.class] = true
		d.intents = append(d.intents, in.name)
		d.addTurn(in, drawn)
	}
	return turns <= 1 || len(used) == len(d.classes)
}

// referBackProbability is the probability that a turn after the first prefers an intent that refers to an earlier turn.
const referBackProbability = 0.35

// choose draws an intent that the state admits and applies it to the draft's model of the state.
func (d *draft) choose() (intent, drawn, bool) {
	preferred := len(d.turns) > 0 && d.rng.Float64() < referBackProbability
	for _, refersBack := range []bool{preferred, false} {
		fit := slices.DeleteFunc(slices.Clone(intents()), func(in intent) bool {
			return in.refersBack != refersBack || !slices.Contains(d.classes, in.class)
		})
		d.rng.Shuffle(len(fit), func(i, j int) { fit[i], fit[j] = fit[j], fit[i] })
		for _, in := range fit {
			if drawn, ok := in.draw(d); ok {
				return in, drawn, true
			}
		}
	}
	return intent{}, drawn{}, false
}

// drawn is what an intent drew: the values of the placeholders in its phrases, and the ground truth.
type drawn struct {
	values map[string]string // placeholder without braces -> value
	calls  []string
}

// vagueProbability is the probability that an intent with a vague phrase uses it: the request omits a value, the ground
// truth of its turn is empty, and the next turn supplies the value.
const vagueProbability = 0.27

// addTurn adds the request and the ground truth of an intent.
func (d *draft) addTurn(in intent, m drawn) {
	d.forget(in)
	if in.vague != "" && d.rng.Float64() < vagueProbability {
		d.category = "miss_param"
		d.turns = append(d.turns,
			bfcl.Turn{User: d.withOpener(in.vague), GroundTruth: []string{}},
			bfcl.Turn{User: replace("The file is {f}.", m.values), GroundTruth: m.calls})
		return
	}
	phrase := in.phrases[d.rng.IntN(4)]
	if d.heldOut {
		phrase = in.phrases[4]
	}
	d.turns = append(d.turns, bfcl.Turn{User: d.withOpener(replace(phrase, m.values)), GroundTruth: m.calls})
}

// forget clears "it" after a turn without a file: "it" always means a file of the previous turn.
func (d *draft) forget(in intent) {
	if d.files != nil && in.class != "GorillaFileSystem" {
		d.files.it = ""
	}
}

// withOpener prefixes a phrase with an opener, or returns it unchanged if it draws none. After an opener the first
// letter is lower case, except in the word "I".
func (d *draft) withOpener(phrase string) string {
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

// replace replaces the placeholders {name} of a phrase. No value contains braces, so the order is irrelevant.
func replace(phrase string, values map[string]string) string {
	for name, value := range values {
		phrase = strings.ReplaceAll(phrase, "{"+name+"}", value)
	}
	return phrase
}

// belongs reports whether the sequence of intents is on the set's side of the split.
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
		Category:      d.category,
		Family:        strings.Join(d.intents, " > "),
		Classes:       d.classes,
		InitialConfig: scenario,
		Turns:         d.turns,
	}, nil
}
