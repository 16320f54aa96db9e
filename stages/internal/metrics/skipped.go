package metrics

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"rcgrpo/engine"
)

// skippedFile is the file of a metrics port that holds the batches of updates which were left out because their gradient was
// no finite number: rows of Skipped. It is there only when there was one.
const skippedFile = "skipped.jsonl"

// Skipped is a sequence of such a batch as the model met it.
type Skipped struct {
	Update    int      `json:"update"`
	Task      string   `json:"task,omitempty"`
	Token     string   `json:"token,omitempty"`     // that it was sampled under
	Reward    *Number  `json:"reward,omitempty"`    // of an episode
	Advantage *Number  `json:"advantage,omitempty"` // of an episode
	Logp      []Number `json:"logp"`                // of the tokens with loss, in their order
	Text      string   `json:"text"`
	IDs       []int32  `json:"ids"`
	Mask      []bool   `json:"mask"` // tokens with loss
}

// Number is a number that may be none: what JSON cannot carry is written as "NaN", "+Inf" or "-Inf".
type Number float64

func (n Number) MarshalJSON() ([]byte, error) {
	if v := float64(n); math.IsNaN(v) || math.IsInf(v, 0) {
		return json.Marshal(fmt.Sprint(v))
	}
	return json.Marshal(float64(n))
}

// Numbers turns values into Numbers.
func Numbers(values []float64) []Number {
	out := make([]Number, len(values))
	for i, v := range values {
		out[i] = Number(v)
	}
	return out
}

// Dump keeps the batch of an update whose gradient is no finite number, and says in the stage's log where: in the scratch
// folder, and at the end in the port metrics. It returns end, the error that this time ends the training, with the place
// added, or nil.
func (l *Log) Dump(job *engine.Job, update int, batch []Skipped, end error) error {
	for _, s := range batch {
		if err := l.skipped.Append(s); err != nil {
			return errors.Join(end, err)
		}
	}
	if end != nil {
		return fmt.Errorf("%w; the batches that were left out are in %s", end, l.skipped.Path())
	}
	job.Logf("update %d was left out: its gradient is no finite number; its batch is in %s, and at the end in %s of the port metrics", update, l.skipped.Path(), skippedFile)
	return nil
}
