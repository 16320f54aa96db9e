package environment

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"sync"

	"rcgrpo/bfcl"
	"rcgrpo/stages/rl"
)

// turns is the part of an rl.Env that all programs share.
type turns struct {
	system, user string
	tools        []rl.Tool
	turn         int
	steps        int // executed in this turn
	most         int // steps per turn; the next one ends the episode; 0: unlimited
	stop         string
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

// refusal writes an execution error as a result.
func refusal(text string) string {
	raw, _ := json.Marshal(map[string]string{"error": text})
	return string(raw)
}

// rewarded is the verdict of an episode with a reward. Official is success, a reward of 1.
func rewarded(reward float64) bfcl.Verdict {
	return bfcl.Verdict{Reward: reward, Official: reward == 1, RState: math.NaN(), RAction: math.NaN(), Turn: -1}
}

// mostLost is the number of episodes in a row that fail twice before a program counts as broken.
const mostLost = 8

// patience ends the episodes of a program that fails in each of them.
type patience struct {
	mu     sync.Mutex
	lost   int // failures in a row
	most   int // of them; 0: mostLost
	broken error
}

// working returns the error of a broken program.
func (p *patience) working() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.broken
}

// judge counts episodes that failed twice. After mostLost in a row the program counts as broken, so that a stage ends
// soon.
func (p *patience) judge(worked bool, err error, log func(format string, args ...any)) {
	p.count(worked, cmp.Or(p.most, mostLost), "twice in each of %d episodes", err, log)
}

// count counts failures in a row. After most of them the program counts as broken; how is the format of their number in
// the error.
func (p *patience) count(worked bool, most int, how string, err error, log func(format string, args ...any)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if worked {
		p.lost = 0
	} else if p.lost++; p.lost >= most && p.broken == nil {
		p.broken = fmt.Errorf("the program failed "+how+" in a row, and is not started again; the last failure: %v", p.lost,
			err)
		log("%v", p.broken)
	}
}
