package live

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
	"rcgrpo/internal/browser"
	"rcgrpo/internal/must"
)

func startLive(t *testing.T) *Page {
	t.Helper()
	l := must.Get(Start(&lang.Experiment{Name: "drills", Question: "</script><img src=x onerror=alert(1)>"}))(t)
	return l
}

func get(t *testing.T, address string) *http.Response {
	t.Helper()
	r := must.Get(http.Get(address))(t)
	t.Cleanup(func() { r.Body.Close() })
	return r
}

func TestLivePageFollowsTheRun(t *testing.T) {
	l := startLive(t)
	stream := get(t, l.URL+"events")
	lines := bufio.NewScanner(stream.Body)
	lines.Buffer(nil, 1<<20)
	// next reads states until one is as wanted.
	next := func(what string, wanted func(state) bool) state {
		t.Helper()
		for lines.Scan() {
			text, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok || text == "" {
				continue
			}
			var s state
			must.OK(t, json.Unmarshal([]byte(text), &s))
			if wanted(s) {
				return s
			}
		}
		t.Fatalf("the stream ended before %s", what)
		return state{}
	}
	next("the first state", func(s state) bool { return s.Title == "drills" })
	l.Observe(runs.Event{Kind: runs.EventPlanned,
		Counts: map[string]int{"up to date": 5, "run": 2, "run unless unchanged": 1}})
	l.Observe(runs.Event{Kind: runs.EventStarted, Address: "stage.grpo.arm", Time: time.Now()})
	for u := 1; u <= 1000; u++ {
		l.Observe(runs.Event{Kind: runs.EventProgress, Address: "stage.grpo.arm", Done: u, Total: 1000,
			Unit: "updates", Values: []runs.Value{{Name: "reward", Value: float64(u) / 1000}}})
	}
	s := next("progress", func(s state) bool { return len(s.Stages) == 1 && s.Stages[0].Done == 1000 })
	curve := s.Stages[0].Curves["reward"]
	if s.Planned != 3 || s.Stages[0].State != runs.EventStarted || len(curve) > 2*livePoints ||
		len(curve) < livePoints || curve[len(curve)-1] != 1 || curve[len(curve)-2] != 1000 {
		t.Errorf("got %d planned, %s, %d numbers of a curve that ends in %v", s.Planned, s.Stages[0].State, len(curve),
			curve[len(curve)-2:])
	}
	l.Observe(runs.Event{Kind: runs.EventFailed, Address: "stage.eval.arm",
		Failure: &runs.Failure{Text: "out of memory"}})
	l.Observe(runs.Event{Kind: runs.EventDone, Address: "stage.grpo.arm", Seconds: 4})
	l.Observe(runs.Event{Kind: runs.EventFile, Path: "drills.html"})
	l.Observe(runs.Event{Kind: runs.EventEnded, Counts: map[string]int{"done": 1, "failed": 1}})
	closed := make(chan error, 1)
	go func() { closed <- l.Close() }()
	s = next("the end", func(s state) bool { return s.Ended != "" })
	if s.Ended != "ended: 1 done, 1 failed" || s.Stages[0].State != runs.EventDone ||
		s.Stages[1].Text != "out of memory" || len(s.Files) != 1 {
		t.Errorf("got %+v", s)
	}
	if rest, err := io.ReadAll(stream.Body); err != nil || len(rest) > 1<<16 {
		t.Errorf("after the end came %d bytes, %v", len(rest), err)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if _, err := http.Get(l.URL); err == nil {
		t.Error("the server goes on after the run")
	}
}

func TestLivePageRequiresItsSecretAddress(t *testing.T) {
	l := startLive(t)
	defer l.Close()
	if !strings.HasPrefix(l.URL, "http://127.0.0.1:") {
		t.Errorf("served at %s, want the loopback interface", l.URL)
	}
	page := get(t, l.URL)
	text, err := io.ReadAll(page.Body)
	if err != nil || page.StatusCode != http.StatusOK || !strings.Contains(string(text), "EventSource") ||
		strings.Contains(string(text), "onerror") {
		t.Errorf("got %d, %d bytes, %v", page.StatusCode, len(text), err)
	}
	if policy := page.Header.Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") ||
		strings.Contains(policy, "script-src 'unsafe") {
		t.Errorf("policy %q", policy)
	}
	root := l.URL[:strings.Index(l.URL[8:], "/")+8]
	for _, path := range []string{"/", "/events", "/" + strings.Repeat("0", 32) + "/", "/" + strings.Repeat("0", 32) +
		"/events"} {
		if got := get(t, root+path).StatusCode; got != http.StatusNotFound {
			t.Errorf("%s: got %d without the secret, want 404", path, got)
		}
	}
	request := must.Get(http.NewRequest("GET", l.URL, nil))(t)
	request.Host = "evil.example"
	r := must.Get(http.DefaultClient.Do(request))(t)
	defer r.Body.Close()
	if r.StatusCode != http.StatusNotFound {
		t.Errorf("under another host's name: got %d, want 404", r.StatusCode)
	}
}

// The page of a run shows events after it was opened without a reload.
func TestLivePageInABrowser(t *testing.T) {
	l := startLive(t)
	defer l.Close()
	l.Observe(runs.Event{Kind: runs.EventPlanned, Counts: map[string]int{"run": 2}})
	p := browser.Open(t, "127.0.0.1").Open(t, l.URL, browser.Dark(360, 800), "")
	shows := func(what, expression string) {
		t.Helper()
		var yes bool
		p.Eval(`(async () => {
			for (let i = 0; i < 500; i++) {
				if (`+expression+`) return true;
				await new Promise(r => setTimeout(r, 10));
			}
			return false;
		})()`, &yes)
		if !yes {
			var text string
			p.Eval(`document.body.innerText`, &text)
			t.Errorf("the page does not show %s: %q", what, text)
		}
	}
	shows("the question, as text",
		`document.getElementById("question").textContent.includes("onerror=alert(1)") && !document.querySelector("img")`)
	shows("the stages", `document.getElementById("now").textContent === "0 of 2 stages"`)
	p.Eval(`window.since = 1`, nil)
	l.Observe(runs.Event{Kind: runs.EventStarted, Address: "stage.grpo.arm", Time: time.Now()})
	for u := 1; u <= 20; u++ {
		l.Observe(runs.Event{Kind: runs.EventProgress, Address: "stage.grpo.arm", Done: u, Total: 40, Unit: "updates",
			Values: []runs.Value{{Name: "reward", Value: float64(u) / 40}}})
	}
	shows("progress", `document.querySelector("progress")?.value === 20 &&
		document.querySelector("tbody").textContent.includes("20 of 40 updates")`)
	shows("the curve so far", `document.querySelector("polyline")?.getAttribute("points").split(" ").length === 20`)
	l.Observe(runs.Event{Kind: runs.EventFailed, Address: "stage.grpo.arm",
		Failure: &runs.Failure{Text: "out of memory"}})
	l.Observe(runs.Event{Kind: runs.EventEnded, Counts: map[string]int{"failed": 1}})
	shows("the failure and the end",
		`document.querySelector("td.failed")?.textContent.includes("out of memory") &&
			document.getElementById("ended").textContent.includes("1 failed")`)
	var since, beyond float64
	p.Eval(`window.since || 0`, &since)
	p.Eval(`document.documentElement.scrollWidth - innerWidth`, &beyond)
	if since != 1 || beyond > 0 {
		t.Errorf("loaded anew: %v; %v pixels too wide", since != 1, beyond)
	}
	faults := slices.DeleteFunc(p.Faults(), func(fault string) bool { return strings.HasPrefix(fault, "request: "+l.URL) })
	if len(faults) > 0 {
		t.Errorf("%q", faults)
	}
}

// Without a limit, connections without the secret take all file descriptors of the engine, and stages fail.
func TestConnectionsTakeFewFiles(t *testing.T) {
	l := must.Get(Start(&lang.Experiment{}))(t)
	defer l.Close()
	address, _, _ := strings.Cut(strings.TrimPrefix(l.URL, "http://"), "/")
	const clients = 200
	for range clients {
		c := must.Get(net.Dial("tcp", address))(t)
		defer c.Close()
	}
	time.Sleep(500 * time.Millisecond)
	if files := len(must.Get(os.ReadDir("/proc/self/fd"))(t)); files > clients+mostReaders+20 {
		t.Errorf("%d connections take %d files", clients, files-clients)
	}
}
