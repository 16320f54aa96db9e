package reports

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"
)

// chromium is a headless browser steered through its debugging pipe (Chrome DevTools Protocol: JSON ended by a zero
// byte, in by file 3 and out by file 4). Every connection it makes goes to a listener of ours, which answers nothing.
type chromium struct {
	in  *os.File
	mu  sync.Mutex
	ids int
	// Callers that wait for an answer, by call id, and events, by tab.
	answers map[int]chan answer
	told    map[string][]message
	leaving []string // request lines that reached the listener
}

type message struct {
	Method    string          `json:"method"`
	SessionID string          `json:"sessionId"`
	Params    json.RawMessage `json:"params"`
}

type answer struct {
	ID     int             `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// browsersOwn are requests that Chromium makes whatever page it shows: updates, its clock, its account.
var browsersOwn = regexp.MustCompile(`^(CONNECT |[A-Z]+ https?://)(clients\d*\.google\.com|update\.googleapis\.com|accounts\.google\.com|optimizationguide-pa\.googleapis\.com|safebrowsing\.googleapis\.com)[:/ ]`)

// openChromium starts the browser with further flags; the test is skipped where there is none, and under the race
// detector, which sees nothing of what a page does there.
func openChromium(t *testing.T, flags ...string) *chromium {
	t.Helper()
	if raced {
		t.Skip("the browser opens pages without the race detector")
	}
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			program = path
			break
		}
	}
	if program == "" {
		t.Skip("no chromium on this machine")
	}
	c := &chromium{answers: map[int]chan answer{}, told: map[string][]message{}}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in = in
	args := append([]string{"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--disable-extensions",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps",
		"--disable-features=OptimizationHints,MediaRouter,Translate",
		"--user-data-dir=" + filepath.Join(t.TempDir(), "profile"), "--proxy-server=" + c.listen(t),
		"--proxy-bypass-list=<-loopback>", "--remote-debugging-pipe"}, flags...)
	command := exec.Command(program, append(args, "about:blank")...)
	command.ExtraFiles = []*os.File{theirIn, theirOut}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	theirIn.Close()
	theirOut.Close()
	go c.listenTo(out)
	t.Cleanup(func() {
		c.send(0, "", "Browser.close", nil)
		killed := time.AfterFunc(10*time.Second, func() { command.Process.Kill() })
		command.Wait()
		killed.Stop()
		in.Close()
		out.Close()
	})
	return c
}

// listen opens the listener and returns its address.
func (c *chromium) listen(t *testing.T) string {
	t.Helper()
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proxy.Close() })
	go func() {
		for {
			connection, err := proxy.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(connection).ReadString('\n')
			c.mu.Lock()
			c.leaving = append(c.leaving, strings.TrimSpace(line))
			c.mu.Unlock()
			connection.Close()
		}
	}()
	return proxy.Addr().String()
}

func (c *chromium) listenTo(out *os.File) {
	r := bufio.NewReader(out)
	for {
		text, err := r.ReadBytes(0)
		if err != nil {
			return
		}
		text = bytes.TrimSuffix(text, []byte{0})
		var a answer
		var m message
		if json.Unmarshal(text, &a) == nil && a.ID != 0 {
			c.mu.Lock()
			waiting := c.answers[a.ID]
			delete(c.answers, a.ID)
			c.mu.Unlock()
			if waiting != nil {
				waiting <- a
			}
		} else if json.Unmarshal(text, &m) == nil {
			c.mu.Lock()
			c.told[m.SessionID] = append(c.told[m.SessionID], m)
			c.mu.Unlock()
		}
	}
}

func (c *chromium) send(id int, tab, method string, params any) error {
	text, err := json.Marshal(map[string]any{"id": id, "sessionId": tab, "method": method, "params": params})
	if err != nil {
		return err
	}
	text = bytes.Replace(text, []byte(`"sessionId":"",`), nil, 1)
	_, err = c.in.Write(append(text, 0))
	return err
}

// call sends a command and stores the answer in result.
func (c *chromium) call(t *testing.T, tab, method string, params, result any) {
	t.Helper()
	if params == nil {
		params = struct{}{}
	}
	waiting := make(chan answer, 1)
	c.mu.Lock()
	c.ids++
	id := c.ids
	c.answers[id] = waiting
	c.mu.Unlock()
	if err := c.send(id, tab, method, params); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	select {
	case a := <-waiting:
		if a.Error != nil {
			t.Fatalf("%s: %s", method, a.Error.Message)
		}
		if result != nil {
			if err := json.Unmarshal(a.Result, result); err != nil {
				t.Fatalf("%s: %v", method, err)
			}
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s: no answer for two minutes", method)
	}
}

// tab is a page in the browser.
type tab struct {
	*chromium
	t       *testing.T
	session string
}

// view describes the window of a tab.
type view struct {
	width, height int
	dark          bool
}

// openTab opens an address without a network and waits until it has loaded. script runs before the page's own.
func (c *chromium) openTab(t *testing.T, address string, v view, script string) *tab {
	t.Helper()
	var target struct {
		TargetID string `json:"targetId"`
	}
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	c.call(t, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	c.call(t, "", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	p := &tab{c, t, attached.SessionID}
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		p.do(domain+".enable", nil)
	}
	if strings.HasPrefix(address, "file:") {
		p.do("Network.emulateNetworkConditions", map[string]any{"offline": true, "latency": 0, "downloadThroughput": -1,
			"uploadThroughput": -1})
	}
	p.do("Emulation.setDeviceMetricsOverride", map[string]any{"width": v.width, "height": v.height,
		"deviceScaleFactor": 1, "mobile": false})
	scheme := "light"
	if v.dark {
		scheme = "dark"
	}
	p.do("Emulation.setEmulatedMedia",
		map[string]any{"features": []any{map[string]string{"name": "prefers-color-scheme", "value": scheme}}})
	p.do("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": script})
	p.do("Page.navigate", map[string]any{"url": address})
	for until := time.Now().Add(time.Minute); !p.heard("Page.loadEventFired"); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%s has not loaded for a minute", address)
		}
	}
	return p
}

func (p *tab) do(method string, params any) {
	p.t.Helper()
	p.call(p.t, p.session, method, params, nil)
}

func (p *tab) heard(method string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.told[p.session] {
		if m.Method == method {
			return true
		}
	}
	return false
}

// eval computes an expression in the page, a promise to its end, and keeps its value.
func (p *tab) eval(expression string, value any) {
	p.t.Helper()
	var got struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Text      string
			Exception struct{ Description string }
		} `json:"exceptionDetails"`
	}
	p.call(p.t, p.session, "Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true,
		"returnByValue": true, "userGesture": true}, &got)
	if e := got.ExceptionDetails; e != nil {
		p.t.Fatalf("%.80s: %s %s", expression, e.Text, e.Exception.Description)
	}
	if value != nil {
		if err := json.Unmarshal(got.Result.Value, value); err != nil {
			p.t.Fatalf("%.80s: %v in %.200s", expression, err, got.Result.Value)
		}
	}
}

// press types keys by their names: "Tab", "Enter", "ArrowRight".
func (p *tab) press(keys ...string) {
	p.t.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39,
		"ArrowDown": 40}
	for _, key := range keys {
		for _, kind := range []string{"rawKeyDown", "keyUp"} {
			p.do("Input.dispatchKeyEvent", map[string]any{"type": kind, "key": key, "code": key,
				"windowsVirtualKeyCode": codes[key]})
		}
	}
}

// screenshot returns the tab as a PNG.
func (p *tab) screenshot() []byte { return p.file("Page.captureScreenshot") }

// pdf is the page as it is printed.
func (p *tab) pdf() []byte { return p.file("Page.printToPDF") }

func (p *tab) file(method string) []byte {
	p.t.Helper()
	var got struct {
		Data string `json:"data"`
	}
	p.call(p.t, p.session, method, nil, &got)
	data, err := base64.StdEncoding.DecodeString(got.Data)
	if err != nil {
		p.t.Fatal(err)
	}
	return data
}

// faults returns the errors on the console of the tab, and its requests except the one for the page.
func (p *tab) faults() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var faults []string
	for _, m := range p.told[p.session] {
		var params struct {
			Type  string
			Entry struct{ Level, Text, URL string }
			Args  []struct {
				Value       any
				Description string
			}
			ExceptionDetails struct {
				Text      string
				Exception struct{ Description string }
			}
			Request struct{ URL string }
		}
		if err := json.Unmarshal(m.Params, &params); err != nil {
			faults = append(faults, err.Error())
			continue
		}
		switch m.Method {
		case "Runtime.exceptionThrown":
			faults = append(faults, params.ExceptionDetails.Text+" "+params.ExceptionDetails.Exception.Description)
		case "Runtime.consoleAPICalled":
			if params.Type == "error" || params.Type == "assert" {
				faults = append(faults, fmt.Sprint("console: ", params.Args))
			}
		case "Log.entryAdded":
			if params.Entry.Level == "error" {
				faults = append(faults, params.Entry.Text+" "+params.Entry.URL)
			}
		case "Network.requestWillBeSent":
			if !regexp.MustCompile(`^(file|blob|data|about):`).MatchString(params.Request.URL) {
				faults = append(faults, "request: "+params.Request.URL)
			}
		}
	}
	for _, line := range p.leaving {
		if !browsersOwn.MatchString(line) {
			faults = append(faults, "a request leaves: "+line)
		}
	}
	return faults
}
