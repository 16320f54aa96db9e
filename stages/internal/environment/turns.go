package environment

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl"
)

// turns is the part of an rl.Env that programs and servers share.
type turns struct {
	*launcher
	task   *bfcl.Task
	alone  bool // this is the second try, in a process of its own
	failed bool // a fault was logged

	system, user string
	tools        []rl.Tool
	turn         int    // index of the current turn
	steps        int    // steps executed in this turn
	most         int    // most steps per turn; one more is executed and ends the episode; 0: unlimited
	stop         string // why the episode ended; "" before its end
}

func (t *turns) System() string   { return t.system }
func (t *turns) Turn() int        { return t.turn }
func (t *turns) User() string     { return t.user }
func (t *turns) Tools() []rl.Tool { return t.tools }
func (t *turns) Done() bool       { return t.stop != "" }
func (t *turns) Stop() string     { return t.stop }

// next starts the next turn.
func (t *turns) next(user string) {
	t.user, t.steps = user, 0
	t.turn++
}

// limit ends the episode after too many steps of one turn.
func (t *turns) limit() {
	if t.most > 0 && t.steps > t.most {
		t.stop = rl.StopTurnLimit
	}
}

// report logs the first fault of the episode with the standard error of its process, and returns err.
func (t *turns) report(err error, stderr string) error {
	if _, ok := errors.AsType[*Fault](err); ok && !t.failed {
		t.failed = true
		what := "the episode is played again, alone"
		if t.alone {
			what = "the episode has no reward"
			t.Count(err)
		}
		t.log("%v; %s%s", err, what, stderr)
	}
	return err
}

// rewarded returns the verdict of an episode with a reward, which ends a row of failures. Official is success, a
// reward of 1.
func (t *turns) rewarded(reward float64) bfcl.Verdict {
	t.Count(nil)
	return bfcl.Verdict{Reward: reward, Official: reward == 1, RState: math.NaN(), RAction: math.NaN(),
		Turn: -1}
}

// readCalls returns the calls of a reply in JSON, the index of each in the reply, and a result for each call of the
// reply: an error for those that cannot be read.
func readCalls(r rl.Reply) (results []string, calls []call, at []int) {
	results, calls = make([]string, len(r.Calls)), []call{}
	for i, c := range r.Calls {
		name, arguments, err := bfcl.CallJSON(c.Text)
		if err != nil {
			results[i] = refusal(err.Error())
			continue
		}
		calls, at = append(calls, call{name, arguments}), append(at, i)
	}
	return results, calls, at
}

// maxResults bounds the bytes of the results of a step. The prompts of most models have room for less, and a server may
// send gigabytes.
const maxResults = 1 << 20

// fit returns a result, or an error in the place of one that is longer than the bytes left for its step.
func fit(left *int, text string, failed bool) (string, bool) {
	if len(text) > *left {
		return refusal(fmt.Sprintf("it has %d bytes; the results of a step have at most %d", len(text), maxResults)), true
	}
	*left -= len(text)
	return text, failed
}

// refusal writes an execution error as a result.
func refusal(text string) string {
	raw, _ := json.Marshal(map[string]string{"error": text})
	return string(raw)
}
