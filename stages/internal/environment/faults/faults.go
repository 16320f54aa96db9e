// Package faults plays the faults of programs in tests: a test binary that stands in for a program, which speaks
// JSON-RPC 2.0 on its standard output, writes its answers with Answer.
package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"rcgrpo/engine/proc"
)

// Marks is the variable with the folder in which programs of tests leave marks.
const Marks = "MARKS"

var writing sync.Mutex

func write(text string) {
	writing.Lock()
	defer writing.Unlock()
	os.Stdout.WriteString(text)
}

// Break has the process do a fault in place of an answer. It reports false for faults of Answer.
func Break(fault string) bool {
	switch fault {
	case "garbage":
		write("Hello, world!\n")
	case "silence":
	case "flood": // 1 GB without the end of a line
		write(`{"jsonrpc": "2.0", "id": "`)
		for range 1024 {
			write(strings.Repeat("x", 1<<20))
		}
	case "notices", "questions": // without end, and without reading
		line := `{"jsonrpc": "2.0", "method": "notifications/elicitation/complete"}` + "\n" // params are missing
		if fault == "questions" {
			line = `{"jsonrpc": "2.0", "id": 1, "method": "ping"}` + "\n"
		}
		for range 1024 {
			write(strings.Repeat(line, 1<<20/len(line)))
		}
	case "fork": // it ends, and leaves a child in a session of its own that holds its output open
		child := exec.Command("/bin/sh", "-c", `echo $$ >>"$0"; exec sleep 600`, filepath.Join(os.Getenv(Marks), "children"))
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
	case "half":
		write(`{"jsonrpc": "2.0", "id"`)
		os.Exit(0)
	default:
		return false
	}
	return true
}

// Answer writes the answer of a request with a fault, "" for none.
func Answer(fault string, id int64, result any) {
	text, _ := json.Marshal(result)
	line := func(id int64, member string) string {
		return fmt.Sprintf(`{"jsonrpc": "2.0", "id": %d, %s}`+"\n", id, member)
	}
	right := line(id, `"result": `+string(text))
	switch fault {
	case "":
		write(right)
	case "twice":
		write(right + right)
	case "other": // no request has this id
		write(line(id+1_000_000, `"result": {}`))
	case "sibling": // perhaps another episode's request has this id
		write(line(id-1, `"result": {}`))
	case "nan":
		write(line(id, `"result": {"reward": NaN}`))
	case "null":
		write(line(id, `"result": {"reward": null, "results": [], "content": [], "inputRequests": {"a": null}}`))
	case "list":
		write(line(id, `"result": []`))
	case "error":
		write(line(id, `"error": {"code": -32602, "message": "sold out"}`))
	case "stderr": // no fault, but much text
		for range 16 {
			os.Stderr.WriteString(strings.Repeat("y", 1<<20) + "\n")
		}
		write(right)
	case "deaf": // it answers, and reads nothing more; its questions have more answers than a pipe holds
		for i := range 1400 {
			write(fmt.Sprintf(`{"jsonrpc": "2.0", "id": "%064d", "method": "ping"}`+"\n", i))
		}
		write(right)
		time.Sleep(time.Hour)
	default:
		if !Break(fault) {
			panic(fault)
		}
	}
}

// Once reports whether the mark of a name exists already, and leaves it.
func Once(name string) bool {
	path := filepath.Join(os.Getenv(Marks), strings.ReplaceAll(name, " ", "_"))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		f.Close()
	}
	return err != nil
}

// Orphans returns the processes that programs with the fault "fork" left and that have not ended.
func Orphans(marks string) (pids []int) {
	text, _ := os.ReadFile(filepath.Join(marks, "children")) // there is none without the fault
	for _, word := range strings.Fields(string(text)) {
		pid, _ := strconv.Atoi(word)
		if s, ok := proc.ReadStat(pid); ok && proc.Same(pid, s.Start) {
			pids = append(pids, pid)
		}
	}
	return pids
}
