package rl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/internal/must"
	"rcgrpo/stages/rl/blocks"
)

// runes is a codec whose ids are characters: U opens a user message, A a reply, which ends in '!' (calls) or '.'
// (yields); a reward token is H or L. A reply that yields with a parenthesis is malformed.
type runes struct{}

func ids(s string) []int32 {
	var out []int32
	for _, r := range s {
		out = append(out, r)
	}
	return out
}

func letter(token string) string { return map[string]string{TokenHigh: "H", TokenLow: "L"}[token] }

func (runes) Begin(_ string, _ []Tool, request, _ string) ([]int32, error) {
	return ids("^U" + request), nil
}
func (runes) User(text string) ([]int32, error) {
	if strings.HasPrefix(text, "refused") {
		return nil, errors.New("the template refuses: no second request")
	}
	return ids("U" + text), nil
}
func (runes) Tool(results []string) ([]int32, error) {
	return ids("T" + strings.Join(results, ",")), nil
}
func (runes) Header(token string) []int32 { return ids("A" + letter(token)) }
func (runes) Between() []int32            { return ids("-") }
func (runes) Stop(id int32) bool          { return id == '!' || id == '.' }
func (runes) Text(is []int32) string      { return string(is) }
func (runes) Reply(calls []string) []int32 {
	if len(calls) == 0 {
		return ids(".")
	}
	return ids(strings.Join(calls, ";") + "!")
}
func (runes) Parse(is []int32) Parsed {
	s := string(is)
	if body, ok := strings.CutSuffix(s, "!"); ok {
		return Parsed{Text: body, Calls: replyWith(strings.Split(body, ";")...).Calls}
	}
	return Parsed{Text: strings.TrimSuffix(s, "."), Malformed: strings.Contains(s, "(")}
}

// script is a sampler with a given reply to each prompt (all text up to the open reply), one character at a time.
type script struct {
	reply     func(prompt string) string
	slots     int
	seq       []string
	start     []int // of the open reply
	batches   []string
	fail      error
	failAfter int
	released  int
}

func newScript(slots int, reply func(string) string) *script {
	return &script{reply: reply, slots: slots, seq: make([]string, slots), start: make([]int, slots)}
}

func (p *script) Slots() int   { return p.slots }
func (p *script) MaxLen() int  { return 500 }
func (p *script) Cut(i, n int) { p.seq[i], p.start[i] = p.seq[i][:n], 0 }
func (p *script) Release() error {
	p.released++
	for i := range p.slots {
		p.Cut(i, 0)
	}
	return nil
}
func (p *script) Next(_ context.Context, rs []Request) ([]Draw, error) {
	if p.fail != nil && len(p.batches) >= p.failAfter {
		return nil, p.fail
	}
	var note []string
	draws := make([]Draw, len(rs))
	used := map[int]bool{}
	for i, r := range rs {
		if used[r.Slot] || len(r.Feed) == 0 {
			return nil, fmt.Errorf("slot %d: twice in a batch, or nothing to feed", r.Slot)
		}
		used[r.Slot] = true
		p.seq[r.Slot] += string(r.Feed)
		if len(r.Feed) > 1 || p.start[r.Slot] == 0 {
			p.start[r.Slot] = len(p.seq[r.Slot])
		}
		prompt, sofar := p.seq[r.Slot][:p.start[r.Slot]], p.seq[r.Slot][p.start[r.Slot]:]
		want := p.reply(prompt)
		draws[i] = Draw{Token: int32(want[len(sofar)%len(want)]), Logp: float32(-r.U)}
		note = append(note, fmt.Sprintf("%d:%d", r.Slot, len(r.Feed)))
	}
	p.batches = append(p.batches, strings.Join(note, " "))
	return draws, nil
}

// world is an environment of a number of turns; its behaviour is in the task's id.
type world struct {
	id    string
	turn  int
	steps int
	calls []string
	delay func(task string)
}

func (w *world) Turn() int     { return w.turn }
func (w *world) User() string  { return fmt.Sprintf("%s%d", w.id, w.turn) }
func (w *world) Tools() []Tool { return ToolsNamed([]string{"f", "g"}) }
func (w *world) Step(_ context.Context, r Reply) ([]string, int, error) {
	w.delay(w.id)
	calls := texts(r.Calls)
	if len(calls) == 0 {
		w.turn++
		w.steps = 0
		return nil, 0, nil
	}
	if calls[0] == "crash" {
		return nil, 0, errors.New("the disk is gone")
	}
	w.steps++
	w.calls = append(w.calls, calls...)
	results, errs := []string{}, 0
	for _, c := range calls {
		if c == "bad" {
			errs++
		}
		results = append(results, "ok:"+c)
	}
	return results, errs, nil
}
func (w *world) Done() bool     { return w.turn == 2 || w.steps > 3 }
func (w *world) System() string { return "" }
func (w *world) Close()         {}
func (w *world) Stop() string {
	if w.steps > 3 {
		return StopTurnLimit
	}
	return StopDone
}
func (w *world) Verdict(context.Context) (bfcl.Verdict, error) {
	if strings.HasPrefix(w.id, "unjudged") {
		return bfcl.Verdict{}, errors.New("no verdict")
	}
	return bfcl.Verdict{RState: 1, RAction: 1, Reward: 1, Official: true}, nil
}

// delayedCollector is a collector whose environments wait before each step.
type delayedCollector struct {
	*Collector
	delay func(task string)
}

func collector(p Sampler) *delayedCollector {
	c := &delayedCollector{delay: func(string) {}}
	c.Collector = &Collector{
		Policy: &Local{Batcher: NewBatcher(p), Codec: runes{}, Limits: blocks.Limits{Steps: 3, Reply: 20, Context: 120},
			Seed: 5, Temperature: 1},
		Environment: StartFunc(func(_ context.Context, t *bfcl.Task, _ StartOptions) (Env, error) {
			if t.ID == "broken" {
				return nil, errors.New("no initial state")
			}
			return &world{id: t.ID, delay: c.delay}, nil
		}),
	}
	return c
}

func asks(names ...string) []Rollout {
	var out []Rollout
	for i, n := range names {
		out = append(out, Rollout{Task: &bfcl.Task{ID: n, Family: "fam", Category: "base"}, Update: 3, Member: i,
			Token: TokenHigh})
	}
	return out
}

// obedient calls f once in every turn, then yields. Names choose otherwise.
func obedient(prompt string) string {
	last := prompt[strings.LastIndexByte(prompt, 'U')+1:]
	switch {
	case strings.HasPrefix(last, "loop"):
		return "f!"
	case strings.HasPrefix(last, "never"):
		return "abcdefg"
	case strings.HasPrefix(last, "crash"):
		return "crash!"
	case strings.HasPrefix(last, "long"):
		return "0123456789012345!"
	case strings.Contains(last, "T"):
		return strings.Repeat("y", strings.Count(last, "x")) + "."
	}
	return "f;bad" + strings.Repeat("x", strings.Count(last, "x")) + "!"
}

func TestTrajectoryRecordsTheEpisode(t *testing.T) {
	got, stats, err := collector(newScript(1, obedient)).Collect(t.Context(), asks("a"), nil)
	must.OK(t, err)
	e := got[0]
	if want := "^Ua0AHf;bad!-Tok:f,ok:badAH.-Ua1AHf;bad!-Tok:f,ok:badAH."; string(e.IDs) != want {
		t.Errorf("ids:\n got %s\nwant %s", string(e.IDs), want)
	}
	var mine []int32
	for i, m := range e.Mask {
		if m {
			mine = append(mine, e.IDs[i])
			if u := Sampling(5, 3, "a", 0).At(i); e.Logp[i] != float32(-u) {
				t.Errorf("place %d was drawn with %v, want %v", i, -e.Logp[i], u)
			}
		} else if e.Logp[i] != 0 {
			t.Errorf("place %d was given, but has logp %v", i, e.Logp[i])
		}
	}
	if want := "f;bad!.f;bad!."; string(mine) != want {
		t.Errorf("sampled: got %s, want %s", string(mine), want)
	}
	if e.Stop != StopDone || e.Reward != 1 || !e.Official || e.Calls != 4 || e.Errors != 2 ||
		!slices.Equal(e.Tools, []string{"f", "g"}) {
		t.Errorf("got %+v", e)
	}
	var roles []string
	for _, m := range e.Messages {
		roles = append(roles, fmt.Sprintf("%s%d %s", m.Role, m.Turn, string(e.IDs[m.From:m.To])))
	}
	if want := []string{"user0 Ua0", "assistant0 AHf;bad!", "tool0 Tok:f,ok:bad", "assistant0 AH.", "user1 Ua1",
		"assistant1 AHf;bad!", "tool1 Tok:f,ok:bad", "assistant1 AH."}; !slices.Equal(roles[1:], want[1:]) ||
		roles[0] != "user0 ^Ua0" {
		t.Errorf("messages: got %q", roles)
	}
	if stats.Sampled != len(mine) || stats.Given+stats.Sampled != len(e.IDs) {
		t.Errorf("stats %+v for %d ids, %d of them sampled", stats, len(e.IDs), len(mine))
	}
}

func TestMalformedRepliesAreCounted(t *testing.T) {
	for name, tc := range map[string]struct {
		reply              func(string) string
		replies, malformed int
	}{
		"calls and yields":        {obedient, 4, 0},
		"the beginning of a call": {func(string) string { return "f(." }, 2, 2},
		"a text":                  {func(string) string { return "no." }, 2, 0},
		"malformed in the first turn": {func(s string) string {
			if strings.Contains(s, "Ua1") {
				return obedient(s)
			}
			return "f(."
		}, 3, 1},
	} {
		got, _, err := collector(newScript(1, tc.reply)).Collect(t.Context(), asks("a"), nil)
		must.OK(t, err)
		if s := got[0].Score("test", false); s.Replies != tc.replies || s.Malformed != tc.malformed {
			t.Errorf("%s: got %d of %d replies malformed, want %d of %d", name, s.Malformed, s.Replies, tc.malformed,
				tc.replies)
		}
	}
}

// drawn records the tokens that each slot was fed and, after a bar, the drawn one.
type drawn struct {
	*script
	bySlot map[int][]string
	fed    int
}

func (p *drawn) Next(ctx context.Context, rs []Request) ([]Draw, error) {
	draws, err := p.script.Next(ctx, rs)
	for i := range draws {
		p.fed += len(rs[i].Feed)
		p.bySlot[rs[i].Slot] = append(p.bySlot[rs[i].Slot], string(rs[i].Feed)+"|"+string(draws[i].Token))
	}
	return draws, err
}

// Each reply ends at its own stop token: it belongs to the reply, no token is drawn after it, and the next message
// follows it, while the other episodes continue. A reply without a stop token ends at the limit. The slot of an ended
// episode serves the next rollout.
func TestEveryReplyEndsAtItsOwnStopToken(t *testing.T) {
	p := &drawn{script: newScript(2, func(prompt string) string {
		last := prompt[strings.LastIndexByte(prompt, 'U')+1:]
		switch {
		case strings.HasPrefix(last, "never"):
			return "abcdefg"
		case strings.HasPrefix(last, "s0") && !strings.Contains(last, "T"):
			return "f!"
		}
		return "."
	}), bySlot: map[int][]string{}}
	c := collector(p)
	c.Policy.(*Local).Limits.Reply = 9
	got, _, err := c.Collect(t.Context(), asks("s", "never", "w"), nil)
	must.OK(t, err)
	fed := strings.Join(slices.Concat(p.bySlot[0], p.bySlot[1]), " ")
	for _, episode := range []string{"s0AH|f f|! !-Tok:fAH|. .-Us1AH|.", "never0AH|a a|b b|c c|d d|e e|f f|g g|a a|b",
		"w0AH|. .-Uw1AH|."} { // without ^U, which the second episode of a slot finds there
		must.Contain(t, fed, episode)
	}
	for i, want := range []struct{ ids, own, stop string }{
		{"^Us0AHf!-Tok:fAH.-Us1AH.", "f!..", StopDone},
		{"^Unever0AHabcdefgab", "abcdefgab", StopStep},
		{"^Uw0AH.-Uw1AH.", "..", StopDone},
	} {
		e, own := got[i], ""
		for at, id := range e.IDs {
			if e.Mask[at] {
				own += string(id)
			}
		}
		if string(e.IDs) != want.ids || own != want.own || e.Stop != want.stop {
			t.Errorf("%s: got %s with %s of its own, ended by %s; want %+v", e.Task, string(e.IDs), own, e.Stop, want)
		}
		if e.Task == "s" && (e.Messages[1].Text != "f" || !slices.Equal(e.Messages[1].Calls, []string{"f"}) ||
			e.Messages[1].To != 8) {
			t.Errorf("the reply with a call is read as %+v, want the stop token inside it and outside its text",
				e.Messages[1])
		}
	}
}

// kilobytes is a codec with a token of a kilobyte, and one that ends a reply.
type kilobytes struct{ Codec }

func (kilobytes) Text([]int32) string { return strings.Repeat("x", 1024) }
func (kilobytes) Stop(id int32) bool  { return id == 7 }

// A model that always samples a token of a kilobyte: 1,400 episodes took 2.8 GB, and 260 of several replies 4.0.
func TestRepliesEndAtALimitOfBytes(t *testing.T) {
	reply := func(left *ReplyBytes) (n int) {
		for ends := left.EndOf(kilobytes{}); ; {
			if n++; ends(Draw{Token: 1}) {
				return n
			}
		}
	}
	long, short := ReplyBytesOf(1<<20), ReplyBytesOf(320)
	if got := []int{reply(&long), reply(&long), reply(&short)}; !slices.Equal(got, []int{257, 257, 11}) || short >= 0 {
		t.Errorf("replies of %d kilobytes, %d bytes are left", got, short)
	}
	if !long.EndOf(kilobytes{})(Draw{Token: 7}) {
		t.Error("a reply does not end with its last id")
	}
}

func TestEveryStopReasonIsRecordedInTheTrajectory(t *testing.T) {
	got, _, err := collector(newScript(2, obedient)).Collect(t.Context(),
		asks("loop", "never", "crash", "broken", "long", "a", "unjudged"), nil)
	must.OK(t, err)
	for i, want := range []struct {
		stop, failure string
		reward        Reward
	}{{StopTurnLimit, "", 0}, {StopStep, StopStep, 0}, {StopError, "the disk is gone", MissingReward()}, {StopError,
		"no initial state", MissingReward()}, {StopLength, StopLength, 0}, {StopDone, "", 1},
		{StopError, "no verdict", MissingReward()}} {
		e := got[i]
		if e.Stop != want.stop || e.Reward != want.reward && !(e.Reward.Missing() && want.reward.Missing()) ||
			e.Failure != want.failure {
			t.Errorf("%s: got stop %q, reward %v, failure %q; want %+v", e.Task, e.Stop, e.Reward, e.Failure, want)
		}
		if len(e.IDs) != len(e.Mask) || len(e.IDs) != len(e.Logp) || len(e.IDs) > 120 {
			t.Errorf("%s: %d ids, %d masks, %d logps", e.Task, len(e.IDs), len(e.Mask), len(e.Logp))
		}
		if n := len(e.Messages); n > 0 && want.stop != StopLength && e.Messages[n-1].To != len(e.IDs) {
			t.Errorf("%s: the messages end at %d of %d ids", e.Task, e.Messages[n-1].To, len(e.IDs))
		}
	}
}

// The reason of a chat template is in the trajectory and in the score.
func TestTheReasonOfARefusedMessageIsStored(t *testing.T) {
	got, _, err := collector(newScript(1, obedient)).Collect(t.Context(), asks("refused", "a"), nil)
	must.OK(t, err)
	const why = "the template refuses: no second request"
	e := got[0]
	if e.Stop != StopHandler || e.Refusal != why || e.Reward != 0 || len(e.Messages) != 4 ||
		e.Score("test", true).Refusal != why {
		t.Errorf("got %+v, want the refusal %q after a reply", e, why)
	}
	if got[1].Refusal != "" || strings.Contains(rowsOf(t, got[1:]), "refusal") {
		t.Errorf("another episode has a refusal: %+v", got[1])
	}
}

func TestEpisodeEndsWhenTheContextIsFull(t *testing.T) {
	c := collector(newScript(1, obedient))
	c.Policy.(*Local).Limits.Context = 20
	got, _, err := c.Collect(t.Context(), asks("never", strings.Repeat("z", 30)), nil)
	must.OK(t, err)
	if e := got[0]; e.Stop != StopLength || len(e.IDs) != 20 || !e.Mask[19] || e.Messages[len(e.Messages)-1].To != 20 ||
		e.Calls != 0 {
		t.Errorf("got %+v", e)
	}
	if e := got[1]; e.Stop != StopLength || len(e.IDs) != 0 || e.Reward != 0 { // the request alone is too long
		t.Errorf("got %+v", e)
	}
}

// jitter sleeps for up to a millisecond, differently each time.
func jitter() { time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond) }

// rowsOf are trajectories as they are stored; a missing reward, which is a NaN in memory, equals another.
func rowsOf(t *testing.T, trajectories []*Trajectory) string {
	t.Helper()
	return string(must.Get(json.Marshal(trajectories))(t))
}

func TestTrajectoriesDependNeitherOnDelaysNorOnSlots(t *testing.T) {
	var names []string
	for i := range 30 { // replies of different lengths, so that episodes fall out of step
		names = append(names, []string{"a", "bb", "loop", "ccc", "never", "talk", "e", "crash", "f",
			"g"}[i%10]+strings.Repeat("x", i%7))
	}
	want := ""
	for _, slots := range []int{6, 6, 1, 10, 30} {
		c := collector(newScript(slots, obedient))
		if want != "" {
			c.delay = func(string) { jitter() }
		}
		got, _, err := c.Collect(t.Context(), asks(names...), nil)
		must.OK(t, err)
		if rows := rowsOf(t, got); want == "" {
			want = rows
		} else if rows != want {
			t.Errorf("%d slots with delays: other trajectories", slots)
		}
	}
}

func TestSlowEnvironmentDelaysNoOtherEpisode(t *testing.T) {
	release := make(chan bool)
	var once sync.Once
	c := collector(newScript(3, obedient))
	c.delay = func(task string) {
		if task == "slow" {
			<-release
		}
	}
	var order []string
	got, _, err := c.Collect(t.Context(), asks("slow", "a", "b", "c"), func(i int, t *Trajectory) error {
		order = append(order, t.Task)
		if len(order) == 3 { // all others have ended
			once.Do(func() { close(release) })
		}
		return nil
	})
	must.OK(t, err)
	if len(order) != 4 || order[3] != "slow" || got[0].Stop != StopDone {
		t.Errorf("order of ends: %v", order)
	}
}

func TestErrorsOfThePolicyAndCancellationStopACollection(t *testing.T) {
	p := newScript(2, obedient)
	p.fail, p.failAfter = errors.New("out of memory"), 3
	if _, _, err := collector(p).Collect(t.Context(), asks("a", "b"), nil); !errors.Is(err, p.fail) ||
		p.released != 1 {
		t.Errorf("got %v, want the policy's error, and the policy released: %d", err, p.released)
	}
	ctx, cancel := context.WithCancel(t.Context())
	n := 0
	_, _, err := collector(newScript(2, func(s string) string { n++; cancel(); return obedient(s) })).Collect(ctx,
		asks("loop", "loop"), nil)
	if !errors.Is(err, context.Canceled) || n > 4 {
		t.Errorf("got %v after %d tokens, want a quick stop", err, n)
	}
	full := errors.New("disk full")
	if _, _, err := collector(newScript(2, obedient)).Collect(t.Context(), asks("a", "b"),
		func(int, *Trajectory) error { return full }); !errors.Is(err, full) {
		t.Errorf("got %v, want the callback's error", err)
	}
	if _, _, err := collector(newScript(0, obedient)).Collect(t.Context(), asks("a"), nil); err == nil {
		t.Error("a policy without slots was accepted")
	}
}

// The count may be of a foreign record, and must neither overflow nor be negative.
func TestRolloutsAreLimited(t *testing.T) {
	for _, samples := range []int{-1, blocks.MostCount, 1 << 62, math.MaxInt} {
		if all, err := Rollouts(make([]*bfcl.Task, 4), samples, ""); err == nil {
			t.Errorf("%d samples of 4 tasks: got %d rollouts", samples, len(all))
		}
	}
}
