package train

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"rcgrpo/engine"
)

// skippedFile is the file of a metrics port with the batches of skipped updates: rows of Skipped. It exists only
// if an update was skipped because its gradient was not finite.
const skippedFile = "skipped.jsonl"

// Skipped is one sequence of a skipped batch, as the model read it.
type Skipped struct {
	Update    int      `json:"update"`
	Task      string   `json:"task,omitempty"`
	Token     string   `json:"token,omitempty"`     // reward token of the episode
	Reward    *Number  `json:"reward,omitempty"`    // reward of the episode
	Advantage *Number  `json:"advantage,omitempty"` // advantage of the episode
	Logp      []Number `json:"logp"`                // logprobs of the tokens of the mask
	Text      string   `json:"text"`
	IDs       []int32  `json:"ids"`
	Mask      []bool   `json:"mask"`
}

// Number is a float64 whose JSON form is "NaN", "+Inf" or "-Inf" for values that are not finite.
type Number float64

func (n Number) MarshalJSON() ([]byte, error) {
	if v := float64(n); math.IsNaN(v) || math.IsInf(v, 0) {
		return json.Marshal(fmt.Sprint(v))
	}
	return json.Marshal(float64(n))
}

// Numbers converts float64 values to Numbers.
func Numbers(values []float64) []Number {
	out := make([]Number, len(values))
	for i, v := range values {
		out[i] = Number(v)
	}
	return out
}

// Dump stores the batch of an update whose gradient is not finite and logs where. It returns end, the error that
// ends the training, with the path added; nil if end is nil.
func (l *Log) Dump(job *engine.Job, update int, batch []Skipped, end error) error {
	for _, s := range batch {
		if err := l.skipped.Append(s); err != nil {
			return errors.Join(end, err)
		}
	}
	if end != nil {
		return fmt.Errorf("%w; the skipped batches are in %s", end, l.skipped.Path())
	}
	job.Logf("update %d was skipped: its gradient is not finite; its batch is in %s, and at the end in %s of the port "+
		"metrics", update, l.skipped.Path(), skippedFile)
	return nil
}
