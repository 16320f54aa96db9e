package api

import (
	"fmt"
	"math"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"

	"rcgrpo/bfcl/internal/py"
	"rcgrpo/internal/must"
)

// play is a started instance.
type play struct {
	t     testing.TB
	class *Class
	it    Instance
}

// start loads a class with a scenario given as JSON, or its default scenario if empty. It loads the
// long context if long is not nil.
func start(t testing.TB, class, scenario string, long map[string]py.Value) *play {
	t.Helper()
	c, ok := Lookup(class)
	if !ok {
		t.Fatalf("there is no class %s", class)
	}
	p := &play{t, c, c.New()}
	var s *py.Dict
	if scenario != "" {
		s = must.Get(py.FromJSON([]byte(scenario)))(t).(*py.Dict)
	}
	shared := NewShared(long, time.Date(2026, 3, 23, 0, 0, 0, 0, time.UTC))
	must.OK(t, p.it.Load(s, shared, long != nil))
	return p
}

// parse returns the method and arguments, including defaults, of a call in Python.
func (p *play) parse(call string) (method Method, args []py.Value) {
	p.t.Helper()
	c := must.Get(py.Parse(call))(p.t).(*py.Call)
	for _, m := range p.class.Methods {
		if m.Name != c.Func.(*py.Name).ID {
			continue
		}
		for _, x := range c.Args {
			v, ok := py.Literal(x)
			if !ok {
				p.t.Fatalf("%s: an argument is not a literal", call)
			}
			args = append(args, v)
		}
		for _, param := range m.Params[len(args):] {
			args = append(args, param.Default)
		}
		return m, args
	}
	p.t.Fatalf("%s: %s has no such method", call, p.class.Name)
	return Method{}, nil
}

// call returns the result string, or the class and text of an exception.
func (p *play) call(call string) string {
	p.t.Helper()
	method, args := p.parse(call)
	return resultOf(method.Call(p.it, args))
}

func resultOf(v py.Value, err error) string {
	if err == nil {
		var text string
		if text, err = py.Result(v); err == nil {
			return text
		}
	}
	return err.Error()
}

func (p *play) want(call, result string) {
	p.t.Helper()
	if got := p.call(call); got != result {
		p.t.Errorf("%s:\n got %s\nwant %s", call, got, result)
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

// TestSessions replays testdata/sessions.txt, which describes its own format.
func TestSessions(t *testing.T) {
	raw := must.Get(os.ReadFile("testdata/sessions.txt"))(t)
	long := smallLong(t)
	preamble, rest, _ := strings.Cut(string(raw), "\n== ")
	scenarios := map[string]string{}
	for line := range strings.Lines(preamble) {
		if name, scenario, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			scenarios[name] = scenario
		}
	}
	for session := range strings.SplitSeq(rest, "\n== ") {
		lines := strings.Split(strings.TrimSpace(session), "\n")
		t.Run(lines[0], func(t *testing.T) {
			class, isLong := strings.CutPrefix(lines[1], "long ")
			class, scenario, _ := strings.Cut(class, " ")
			if named, ok := scenarios[scenario]; ok {
				scenario = named
			}
			var constants map[string]py.Value
			if isLong {
				constants = long
			}
			p := start(t, class, scenario, constants)
			for i := 2; i+1 < len(lines); i += 2 {
				call, want := lines[i], strings.TrimPrefix(lines[i+1], "\t")
				if name, ok := strings.CutPrefix(call, "state "); ok {
					if !strings.Contains("\n"+p.state(), "\n"+name+"="+want+"\n") {
						t.Errorf("state %s is not %s:\n%s", name, want, p.state())
					}
					continue
				}
				p.want(call, want)
			}
		})
	}
}

// odd are values that no method expects everywhere.
func odd() []py.Value {
	self := py.NewList()
	self.Append(self)
	return []py.Value{
		nil, true, int64(-1), int64(0), int64(7), new(big.Int).Lsh(big.NewInt(1), 90), -0.5, 1e308,
		math.NaN(), math.Inf(-1), "", "a", "USR002", "no/such\x00file", "Ünï\U0001F600", "2026-03-23",
		py.NewList(), py.NewList(int64(1), "x", nil), py.NewDict(),
		py.NewDict("id", int64(1), int64(2), 3.5), py.NewSet("a"), py.Tuple{},
		py.Tuple{int64(1), 2.5}, py.Ellipsis, self,
	}
}

// callWith calls every method with arguments that pick selects from values, and passes the results
// to seen.
func callWith(it Instance, c *Class, values []py.Value, pick func(n int) int, seen func(py.Value, error)) {
	for _, m := range c.Methods {
		args := make([]py.Value, len(m.Params))
		for j, p := range m.Params {
			if k := pick(len(values) + 1); k < len(values) {
				args[j] = values[k]
			} else {
				args[j] = p.Default
			}
		}
		seen(m.Call(it, args))
	}
}

func picker(seed int64) func(n int) int {
	rng := py.NewRandom(seed)
	return func(n int) int { return int(rng.RandInt(0, int64(n-1))) }
}

// checkResult reports errors that are not Python exceptions.
func checkResult(t *testing.T) func(v py.Value, err error) {
	return func(v py.Value, err error) {
		if err != nil && !py.IsException(err, py.AsException(err).Class) {
			t.Errorf("error %v is no Exception", err)
		}
		_ = resultOf(v, err)
	}
}

// variants returns all classes, and those with long-context constants a second time.
func variants(t testing.TB) (classes []string, long []map[string]py.Value) {
	constants := smallLong(t)
	for _, c := range Classes() {
		classes, long = append(classes, c.Name), append(long, nil)
	}
	for _, name := range longClasses {
		classes, long = append(classes, name), append(long, constants)
	}
	return classes, long
}

func TestNoArgumentsPanic(t *testing.T) {
	classes, long := variants(t)
	for i, class := range classes {
		pick := picker(int64(i))
		for range 20 {
			p := start(t, class, "", long[i])
			for range 20 {
				callWith(p.it, p.class, odd(), pick, checkResult(t))
			}
		}
	}
}

func FuzzCalls(f *testing.F) {
	classes, long := variants(f)
	f.Add(uint8(0), []byte("calls"))
	f.Add(uint8(9), []byte("\x00\x01\x02\xff"))
	f.Fuzz(func(t *testing.T, class uint8, picks []byte) {
		i := int(class) % len(classes)
		p := start(t, classes[i], "", long[i])
		pick := func(n int) int {
			if len(picks) == 0 {
				return n - 1
			}
			k := int(picks[0]) % n
			picks = picks[1:]
			return k
		}
		for before := len(picks) + 1; len(picks) < before; {
			before = len(picks)
			callWith(p.it, p.class, odd(), pick, checkResult(t))
		}
	})
}

func TestClonesAreIndependent(t *testing.T) {
	values := []py.Value{"USR001", "john", "john123", "x", "SFO", "LAX", "economy", "AAPL", "c1", "b1", "driver",
		int64(0), int64(1), true, py.NewList("a"), py.NewList("driver"), py.NewDict("status", "Closed")}
	classes, long := variants(t)
	for i, class := range classes {
		pick := picker(3)
		p := start(t, class, "", long[i])
		for round := range 50 {
			copied := p.it.Clone(&py.Memo{})
			before := stateText(copied)
			if now := p.state(); now != before {
				t.Fatalf("%s, round %d: the new clone differs:\n%s\n%s", class, round, before, now)
			}
			callWith(p.it, p.class, values, pick, func(py.Value, error) {})
			if after := stateText(copied); after != before {
				t.Fatalf("%s, round %d: calls changed the clone from\n%s\nto\n%s", class, round, before, after)
			}
			second := copied.Clone(&py.Memo{})
			if a, b := answers(copied, p.class), answers(second, p.class); a != b {
				t.Fatalf("%s, round %d: a clone answers\n%s\nits own clone\n%s", class, round, a, b)
			}
		}
	}
}

// answers returns the results of one plain call of every method.
func answers(it Instance, c *Class) (text string) {
	callWith(it, c, []py.Value{"USR002", int64(1)}, func(int) int { return 0 }, func(v py.Value, err error) {
		text += resultOf(v, err) + "\n"
	})
	return text
}

func TestDefaultListsOfTweetsAreOneObject(t *testing.T) {
	p := start(t, "TwitterAPI", `{"authenticated": true}`, nil)
	for _, call := range []string{"post_tweet('0')", "post_tweet('1', [], ['@o'])", "mention(0, '@x')"} {
		p.call(call)
	}
	copied := &play{t, p.class, p.it.Clone(&py.Memo{})}
	p.call("mention(0, ['@later'])")
	mentions := func(p *play, id int, content, list string) {
		t.Helper()
		p.want(fmt.Sprintf("get_tweet(%d)", id), fmt.Sprintf(
			`{"id": %d, "username": "john", "content": "%s", "tags": [], "mentions": %s}`, id, content, list))
	}
	p.call("post_tweet('third')")
	copied.call("post_tweet('third')")
	mentions(p, 2, "third", `["@", "x", "@later"]`)
	mentions(copied, 2, "third", `["@", "x"]`)
	copied.call("mention(2, ['@c'])")
	mentions(copied, 0, "0", `["@", "x", "@c"]`)
	mentions(p, 1, "1", `["@o"]`)
}

func TestForcesAndSlopeAreNotPartOfTheState(t *testing.T) {
	for _, a := range start(t, "VehicleControlAPI", "", nil).it.State() {
		if strings.HasSuffix(a.Name, "Force") || strings.HasSuffix(a.Name, "Angle") {
			t.Errorf("%s is part of the state, want it hidden", a.Name)
		}
	}
}

func TestZeroPadded(t *testing.T) {
	for in, want := range map[string]string{
		"5": "005", "1234": "1234", "-1": "-01", "+": "+00", "": "000", "é": "00é",
	} {
		if got := zeroPadded(in, 3); got != want {
			t.Errorf("zeroPadded(%q, 3): got %q, want %q", in, got, want)
		}
	}
}
