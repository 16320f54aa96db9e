package reports

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
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

// chromium is a headless browser, controlled through its debugging pipe (Chrome DevTools Protocol: JSON that a zero
// byte ends, in by file 3 and out by file 4). Its proxy is a listener of the test, which answers nothing.
type chromium struct {
	in     *os.File
	out    *os.File
	reader *bufio.Reader
	calls  int
	events map[string][]message // by tab

	mu      sync.Mutex
	leaving []string // request lines that reached the listener
}

// message is an answer to a call, or an event.
type message struct {
	ID        int             `json:"id"`
	Method    string          `json:"method"`
	SessionID string          `json:"sessionId"`
	Params    json.RawMessage `json:"params"`
	Result    json.RawMessage `json:"result"`
	Error     struct{ Message string }
}

// browsersOwn are requests that Chromium makes for any page: updates, its clock, its account.
var browsersOwn = regexp.MustCompile(`^(CONNECT |[A-Z]+ https?://)(clients\d*\.google\.com|` +
	`update\.googleapis\.com|accounts\.google\.com|optimizationguide-pa\.googleapis\.com|` +
	`safebrowsing\.googleapis\.com)[:/ ]`)

// openChromium starts the browser with further flags. It skips the test without a browser and under the race detector,
// which does not observe the page.
func openChromium(t *testing.T, flags ...string) *chromium {
	t.Helper()
	if raced {
		t.Skip("the browser opens pages without the race detector")
	}
	program := ""
	for _, name := range []string{"google-chrome", "chromium-browser", "chromium"} { // the last has priority
		if path, err := exec.LookPath(name); err == nil {
			program = path
		}
	}
	if program == "" {
		t.Skip("no chromium on this machine")
	}
	c := &chromium{events: map[string][]message{}}
	theirIn, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, theirOut, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out, c.reader = in, out, bufio.NewReader(out)
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
	t.Cleanup(func() {
		c.send(0, "", "Browser.close", nil)
		go io.Copy(io.Discard, out)
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

// read returns the next message and records it if it is an event.
func (c *chromium) read(t *testing.T) (m message) {
	t.Helper()
	c.out.SetReadDeadline(time.Now().Add(2 * time.Minute))
	text, err := c.reader.ReadBytes(0)
	if err != nil {
		t.Fatalf("read from chromium: %v", err)
	}
	if json.Unmarshal(bytes.TrimSuffix(text, []byte{0}), &m) == nil && m.ID == 0 {
		c.events[m.SessionID] = append(c.events[m.SessionID], m)
	}
	return m
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
	c.calls++
	if err := c.send(c.calls, tab, method, params); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
	m := c.read(t)
	for m.ID != c.calls {
		m = c.read(t)
	}
	if m.Error.Message != "" {
		t.Fatalf("%s: %s", method, m.Error.Message)
	}
	if result != nil {
		if err := json.Unmarshal(m.Result, result); err != nil {
			t.Fatalf("%s: %v", method, err)
		}
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
	for c.read(t).Method != "Page.loadEventFired" {
	}
	return p
}

func (p *tab) do(method string, params any) {
	p.t.Helper()
	p.call(p.t, p.session, method, params, nil)
}

// eval evaluates an expression in the page, awaits a promise, and stores the value.
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

func (p *tab) screenshot() []byte { return p.file("Page.captureScreenshot") }

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
	p.do("Runtime.enable", nil) // its answer follows all earlier events
	p.mu.Lock()
	defer p.mu.Unlock()
	var faults []string
	for _, m := range p.events[p.session] {
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
