package environment

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"rcgrpo/stages/internal/environment/faults"
)

// TestMain runs the program of the tests if the variable SHOP is set: a shop whose tasks want a number of items. With
// NOTES it runs an MCP server.
func TestMain(m *testing.M) {
	if os.Getenv("NOTES") != "" {
		serveNotes(os.Stdin)
		return
	}
	if os.Getenv("SHOP") == "" {
		os.Exit(m.Run())
	}
	s := &shop{carts: map[string]*cart{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		s.handle(lines.Bytes())
	}
}

// shop is a program that answers in any order. A task whose id contains METHOD-FAULT has that fault there, only the
// first time if the id also contains "once".
type shop struct {
	mu    sync.Mutex
	carts map[string]*cart
}

type cart struct {
	task  string
	want  int
	items int
	turn  int
}

func (s *shop) handle(line []byte) {
	var r struct {
		ID     int64
		Method string
		Params struct {
			Set     string
			N       int
			Episode string
			Task    struct {
				ID   string
				Want int
			}
			Text  string
			Calls []struct {
				Name      string
				Arguments struct{ N int }
			}
		}
	}
	if err := json.Unmarshal(line, &r); err != nil {
		panic(err)
	}
	p := r.Params
	s.mu.Lock()
	c := s.carts[p.Episode]
	if c == nil {
		c = &cart{task: p.Task.ID, want: p.Task.Want}
		s.carts[p.Episode] = c
	}
	result := s.answer(r.Method, c, p.Calls, p.N)
	if r.Method == "close" {
		delete(s.carts, p.Episode)
	}
	s.mu.Unlock()
	fault := os.Getenv("FAULT")
	for _, at := range []string{"reset", "step", "score", "close"} {
		if _, rest, ok := strings.Cut(c.task, at+"-"); ok && at == r.Method {
			fault, _, _ = strings.Cut(rest, " ")
		}
	}
	if method, kind, ok := strings.Cut(fault, "-"); ok { // of hello or tasks
		if fault = ""; method == r.Method {
			fault = kind
		}
	}
	if fault != "" && strings.Contains(c.task, "once") && faults.Once(c.task) {
		fault = ""
	}
	go func() {
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
		faults.Answer(fault, r.ID, result)
	}()
}

func (s *shop) answer(method string, c *cart, calls []struct {
	Name      string
	Arguments struct{ N int }
}, n int) any {
	switch method {
	case "hello":
		return map[string]any{"episodes": 16, "tools": []any{map[string]any{"name": "add",
			"parameters": map[string]any{"type": "object"}}}}
	case "tasks":
		var tasks []any
		for i := range n {
			tasks = append(tasks, map[string]any{"id": fmt.Sprint("t", i), "want": i%3 + 1, "expert": []any{[]any{
				map[string]any{"name": "add", "arguments": map[string]int{"n": i%3 + 1}}}, []any{}}})
		}
		return map[string]any{"tasks": tasks}
	case "reset":
		return map[string]any{"user": fmt.Sprint("Put in ", c.want, "."), "system": "A shop."}
	case "step":
		results := []any{}
		for _, call := range calls {
			if call.Name != "add" {
				results = append(results, map[string]string{"error": "no such tool"})
				continue
			}
			c.items += call.Arguments.N
			results = append(results, fmt.Sprint(c.items, " in the cart of ", c.task))
		}
		switch {
		case len(calls) > 0:
			return map[string]any{"results": results}
		case c.turn == 0:
			c.turn++
			return map[string]any{"user": "Thank you. Anything else?"}
		}
		return map[string]any{"done": true}
	case "score":
		return map[string]any{"reward": map[bool]float64{true: 1, false: 0.5}[c.items == c.want]}
	}
	return map[string]any{}
}
