package api

import (
	"fmt"
	"math"
	"math/big"
	"reflect"
	"testing"
	"time"

	"rcgrpo/bfcl/internal/py"
)

// play is a started instance that is called by method name with arguments in order of the signature.
type play struct {
	t     *testing.T
	class *Class
	it    Instance
}

// start loads a class with a scenario given as JSON; "" is no scenario.
func start(t *testing.T, class, scenario string) *play {
	t.Helper()
	c, ok := Lookup(class)
	if !ok {
		t.Fatalf("there is no class %s", class)
	}
	p := &play{t, c, c.New()}
	var s *py.Dict
	if scenario != "" {
		v, err := py.FromJSON([]byte(scenario))
		if err != nil {
			t.Fatal(err)
		}
		s = v.(*py.Dict)
	}
	if err := p.it.Load(s, NewShared(nil, time.Date(2026, 3, 23, 0, 0, 0, 0, time.UTC)), false); err != nil {
		t.Fatal(err)
	}
	return p
}

// call gives the result string of one call, or exception class and text.
func (p *play) call(method string, args ...py.Value) string {
	p.t.Helper()
	for i, m := range p.class.Methods {
		if m.Name != method {
			continue
		}
		for _, param := range m.Params[len(args):] {
			if param.Required {
				p.t.Fatalf("%s: no argument for %s", method, param.Name)
			}
			args = append(args, param.Default)
		}
		v, err := p.it.Call(i, args)
		if err != nil {
			return err.Error()
		}
		return py.Result(v)
	}
	p.t.Fatalf("%s has no method %s", p.class.Name, method)
	return ""
}

// want calls and compares the result string.
func (p *play) want(result, method string, args ...py.Value) {
	p.t.Helper()
	if got := p.call(method, args...); got != result {
		p.t.Errorf("%s%s:\n got %s\nwant %s", method, py.Repr(py.Tuple(args)), got, result)
	}
}

// state prints all attributes.
func (p *play) state() string { return stateText(p.it) }

func stateText(it Instance) string {
	text := ""
	for _, a := range append(it.State(), it.Private()...) {
		text += a.Name + "=" + py.Repr(a.Value) + "\n"
	}
	return text
}

// odd are values that no method expects everywhere.
func odd() []py.Value {
	self := py.NewList()
	self.Append(self)
	return []py.Value{
		nil, true, int64(-1), int64(0), int64(7), new(big.Int).Lsh(big.NewInt(1), 90), -0.5, 1e308, math.NaN(), math.Inf(-1),
		"", "a", "USR002", "no/such\x00file", "Ünï\U0001F600", "2026-03-23", py.NewList(), py.NewList(int64(1), "x", nil),
		py.NewDict(), py.NewDict("id", int64(1), int64(2), 3.5), py.NewSet("a"), py.Tuple{}, py.Tuple{int64(1), 2.5},
		py.Ellipsis, self,
	}
}

// callWith calls every method with arguments picked from values by pick, and passes on what comes back.
func callWith(it Instance, c *Class, values []py.Value, pick func(n int) int, seen func(py.Value, error)) {
	for i, m := range c.Methods {
		args := make([]py.Value, len(m.Params))
		for j, p := range m.Params {
			if k := pick(len(values) + 1); k < len(values) {
				args[j] = values[k]
			} else {
				args[j] = p.Default
			}
		}
		seen(it.Call(i, args))
	}
}

func TestNoArgumentsPanic(t *testing.T) {
	for i := range Classes() {
		c := &Classes()[i]
		t.Run(c.Name, func(t *testing.T) {
			rng := py.NewRandom(int64(i))
			pick := func(n int) int { return int(rng.RandInt(0, int64(n-1))) }
			for range 20 {
				p := start(t, c.Name, "")
				for range 20 {
					callWith(p.it, c, odd(), pick, func(v py.Value, err error) {
						if err != nil && !py.IsException(err, py.AsException(err).Class) {
							t.Errorf("error %v is no Exception", err)
						}
						_ = py.Result(v)
					})
				}
			}
		})
	}
}

func FuzzCalls(f *testing.F) {
	f.Add(uint8(0), []byte("calls"))
	f.Fuzz(func(t *testing.T, class uint8, picks []byte) {
		c := &Classes()[int(class)%len(Classes())]
		it := c.New()
		if err := it.Load(nil, NewShared(nil, time.Time{}), false); err != nil {
			t.Fatal(err)
		}
		pick := func(n int) int {
			if len(picks) == 0 {
				return n - 1
			}
			k := int(picks[0]) % n
			picks = picks[1:]
			return k
		}
		for len(picks) > 0 {
			before := len(picks)
			callWith(it, c, odd(), pick, func(v py.Value, err error) { _ = py.Result(v) })
			if len(picks) == before {
				break
			}
		}
	})
}

func TestClonesGoTheirOwnWay(t *testing.T) {
	for i := range Classes() {
		c := &Classes()[i]
		t.Run(c.Name, func(t *testing.T) {
			rng := py.NewRandom(1)
			pick := func(n int) int { return int(rng.RandInt(0, int64(n-1))) }
			values := []py.Value{"USR001", "USR002", "john", "john123", "x", int64(0), int64(1), true, py.NewList("a"), py.NewDict("status", "Closed")}
			p := start(t, c.Name, "")
			for round := range 30 {
				copied := p.it.Clone(&py.Memo{})
				before := stateText(copied)
				if now := p.state(); now != before {
					t.Fatalf("round %d: the clone differs at once:\n%s\n%s", round, before, now)
				}
				callWith(p.it, c, values, pick, func(py.Value, error) {})
				if after := stateText(copied); after != before {
					t.Fatalf("round %d: calls changed the clone from\n%s\nto\n%s", round, before, after)
				}
				second := copied.Clone(&py.Memo{})
				a, b := answers(copied, c), answers(second, c)
				if !reflect.DeepEqual(a, b) {
					t.Fatalf("round %d: a clone answers\n%q\nits own clone\n%q", round, a, b)
				}
			}
		})
	}
}

// answers calls everything once with plain arguments.
func answers(it Instance, c *Class) (texts []string) {
	callWith(it, c, []py.Value{"USR002", int64(1)}, func(int) int { return 0 }, func(v py.Value, err error) {
		texts = append(texts, fmt.Sprint(py.Result(v), err))
	})
	return texts
}

func BenchmarkCalls(b *testing.B) {
	for _, bm := range []struct {
		class, scenario string
		method          int
		args            []py.Value
	}{
		{"TicketAPI", `{"current_user": "a", "ticket_queue": [{"id": 1, "status": "Open"}, {"id": 2, "status": "Open"}]}`, ticketGet, []py.Value{int64(2)}},
		{"TicketAPI", `{"ticket_queue": [{"id": 1, "status": "Open"}]}`, ticketEdit, []py.Value{int64(1), py.NewDict("priority", int64(3))}},
		{"MessageAPI", `{"current_user": "USR001"}`, messageView, nil},
		{"TwitterAPI", `{"tweets": {"1": {"username": "a", "content": "Text", "tags": ["#t"]}}}`, twitterSearch, []py.Value{"text"}},
		{"MathAPI", "", 1, []py.Value{py.NewList(1.5, int64(2), 3.25)}},
		{"MathAPI", "", 2, []py.Value{py.NewList(1.5, int64(2), 3.25, int64(9))}},
	} {
		c, _ := Lookup(bm.class)
		b.Run(bm.class+"/"+c.Methods[bm.method].Name, func(b *testing.B) {
			it := c.New()
			var s *py.Dict
			if bm.scenario != "" {
				v, err := py.FromJSON([]byte(bm.scenario))
				if err != nil {
					b.Fatal(err)
				}
				s = v.(*py.Dict)
			}
			if err := it.Load(s, NewShared(nil, time.Time{}), false); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				v, err := it.Call(bm.method, bm.args)
				if err != nil {
					b.Fatal(err)
				}
				_ = py.Result(v)
			}
		})
	}
}
