package environment

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestMain runs the program of the tests if the variable SHOP is set: a shop whose tasks want a number of items. With
// NOTES it runs an MCP server.
func TestMain(m *testing.M) {
	if os.Getenv("NOTES") != "" {
		serveNotes(os.Stdin, os.Stdout)
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
	if strings.Contains(c.task, "once") {
		if _, err := os.Stat(marker(c.task)); err == nil {
			fault = ""
		}
		os.WriteFile(marker(c.task), nil, 0o600)
	}
	go s.send(r.ID, result, fault)
}

func marker(task string) string {
	return filepath.Join(os.Getenv("MARKS"), strings.ReplaceAll(task, " ", "_"))
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

var writing sync.Mutex

func write(text string) {
	writing.Lock()
	defer writing.Unlock()
	os.Stdout.WriteString(text)
}

func (s *shop) send(id int64, result any, fault string) {
	text, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "result": result})
	line := string(text) + "\n"
	time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	switch fault {
	case "":
		write(line)
	case "garbage":
		write("Hello, world!\n" + line)
	case "silence":
	case "twice":
		write(line + line)
	case "other": // the answer has the id of another request
		write(fmt.Sprintf(`{"jsonrpc": "2.0", "id": %d, "result": {}}`+"\n", id+1_000_000))
	case "flood": // 1 GB without the end of a line
		for range 1024 {
			write(strings.Repeat("x", 1<<20))
		}
	case "stderr":
		for range 64 {
			os.Stderr.WriteString(strings.Repeat("y", 1<<20) + "\n")
		}
		write(line)
	case "fork": // it ends, and leaves a child in a session of its own that holds its output open
		child := exec.Command("/bin/sh", "-c", "echo $$ >"+filepath.Join(os.Getenv("MARKS"), "child")+"; exec sleep 600")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		child.Start()
		time.Sleep(50 * time.Millisecond)
		os.Exit(0)
	case "death":
		fmt.Fprintln(os.Stderr, "the shelf broke")
		os.Exit(3)
	case "killed":
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case "nan":
		write(fmt.Sprintf(`{"jsonrpc": "2.0", "id": %d, "result": {"reward": NaN}}`+"\n", id))
	case "null":
		write(fmt.Sprintf(`{"jsonrpc": "2.0", "id": %d, "result": {"reward": null, "results": []}}`+"\n", id))
	case "error":
		write(fmt.Sprintf(`{"jsonrpc": "2.0", "id": %d, "error": {"code": 1, "message": "sold out"}}`+"\n", id))
	case "list":
		write(fmt.Sprintf(`{"jsonrpc": "2.0", "id": %d, "result": []}`+"\n", id))
	case "half":
		write(line[:len(line)/2])
		os.Exit(0)
	default:
		panic(fault)
	}
}
