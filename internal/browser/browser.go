// Package browser opens pages in a headless Chromium, for tests. Open starts a browser, Browser.Open opens a page in a
// Tab. Nothing that a page requests reaches a network: the browser's proxy is a listener of the test, which answers
// nothing and reports each request as a fault of the page.
package browser

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	js "github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"rcgrpo/internal/must"
)

// Browser is a running Chromium.
type Browser struct {
	context context.Context

	mu      sync.Mutex
	leaving []string // request lines that reached the listener
}

// browsersOwn are requests that Chromium makes for any page: updates, its clock, its account.
var browsersOwn = regexp.MustCompile(`^(CONNECT |[A-Z]+ https?://)(clients\d*\.google\.com|` +
	`update\.googleapis\.com|accounts\.google\.com|optimizationguide-pa\.googleapis\.com|` +
	`safebrowsing\.googleapis\.com)[:/ ]`)

// Open starts a browser that ends with the test. bypass lists the hosts that it reaches directly. Open skips the test
// if the machine has no Chromium.
func Open(t testing.TB, bypass ...string) *Browser {
	t.Helper()
	program := ""
	for _, name := range []string{"google-chrome", "chromium-browser", "chromium"} { // the last has priority
		if path, err := exec.LookPath(name); err == nil {
			program = path
		}
	}
	if program == "" {
		t.Skip("no chromium on this machine")
	}
	b := &Browser{}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox,
		chromedp.DisableGPU, chromedp.UserDataDir(filepath.Join(t.TempDir(), "profile")),
		chromedp.Flag("disable-component-update", true), chromedp.ProxyServer(b.listen(t)),
		chromedp.Flag("proxy-bypass-list", strings.Join(append([]string{"<-loopback>"}, bypass...), ";")))
	allocator, _ := chromedp.NewExecAllocator(context.Background(), options...)
	b.context, _ = chromedp.NewContext(allocator)
	must.OK(t, chromedp.Do(b.context))
	t.Cleanup(func() {
		if err := chromedp.Cancel(b.context); err != nil {
			t.Error(err)
		}
	})
	return b
}

// listen opens the listener and returns its address.
func (b *Browser) listen(t testing.TB) string {
	t.Helper()
	proxy := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { proxy.Close() })
	go func() {
		for {
			connection, err := proxy.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(connection).ReadString('\n')
			connection.Close()
			if line = strings.TrimSpace(line); line == "" { // Chromium connects ahead of requests
				continue
			}
			b.mu.Lock()
			b.leaving = append(b.leaving, line)
			b.mu.Unlock()
		}
	}()
	return proxy.Addr().String()
}

// Tab is a page in the browser. Its methods end the test after an error.
type Tab struct {
	*Browser
	t       testing.TB
	context context.Context

	faults []string // guarded by Browser.mu
}

// View describes the window of a tab.
type View struct {
	Width, Height int64 // pixels
	Dark          bool
	Paper         bool // with the styles of print, but without its events
}

// Light is a window of a reader who prefers light pages.
func Light(width, height int64) View { return View{Width: width, Height: height} }

// Dark is a window of a reader who prefers dark pages.
func Dark(width, height int64) View { return View{Width: width, Height: height, Dark: true} }

// Open opens an address and waits until the page is loaded. script runs before the scripts of the page. The tab closes
// with the test.
func (b *Browser) Open(t testing.TB, address string, v View, script string) *Tab {
	t.Helper()
	p := &Tab{Browser: b, t: t}
	var cancel context.CancelFunc
	p.context, cancel = chromedp.NewContext(b.context, chromedp.WithListener(p.listenTo))
	t.Cleanup(cancel)
	must.OK(t, chromedp.Do(p.context)) // opens the tab, which lives as long as this context
	p.Show(v)
	Do(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	must.OK(t, chromedp.Do(p.context, chromedp.Navigate(address)))
	return p
}

// Show changes the window of the tab.
func (p *Tab) Show(v View) {
	p.t.Helper()
	scheme, media := "light", ""
	if v.Dark {
		scheme = "dark"
	}
	if v.Paper {
		media = "print"
	}
	Do(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: media,
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
	Do(p, emulation.SetDeviceMetricsOverride,
		emulation.SetDeviceMetricsOverrideParams{Width: v.Width, Height: v.Height, DeviceScaleFactor: 1})
}

// Do sends a command of the Chrome DevTools Protocol to the tab.
func Do[P, R any](p *Tab, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	return must.Get(chromedp.Call(p.context, command, params))(p.t)
}

// timeout bounds an expression. The checks of a large page take minutes on a machine that other programs load.
const timeout = 5 * time.Minute

// Eval evaluates an expression in the page, awaits a promise, and stores the value unless it is nil.
func (p *Tab) Eval(expression string, value any) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.context, timeout)
	defer cancel()
	yes := true
	got, err := chromedp.Call(ctx, js.Evaluate, js.EvaluateParams{Expression: expression, AwaitPromise: &yes,
		ReturnByValue: &yes, UserGesture: &yes})
	if err == nil && got.ExceptionDetails != nil {
		err = errors.New(describe(got.ExceptionDetails))
	}
	if err == nil && value != nil {
		err = json.Unmarshal(got.Result.Value, value)
	}
	if err != nil {
		p.t.Fatalf("%.80s: %v", expression, err)
	}
}

// describe returns the text of an exception, with its stack if it is an Error.
func describe(e *js.ExceptionDetails) string {
	if e.Exception == nil {
		return e.Text
	}
	return e.Text + " " + e.Exception.Description
}

// Press types keys by their names: "Tab", "Enter", "ArrowRight".
func (p *Tab) Press(keys ...string) {
	p.t.Helper()
	codes := map[string]string{"Tab": kb.Tab, "Enter": kb.Enter, "Escape": kb.Escape, "ArrowLeft": kb.ArrowLeft,
		"ArrowUp": kb.ArrowUp, "ArrowRight": kb.ArrowRight, "ArrowDown": kb.ArrowDown}
	for _, key := range keys {
		must.OK(p.t, chromedp.Do(p.context, chromedp.KeyEvent(cmp.Or(codes[key], key))))
	}
}

// Screenshot returns the visible part of the page as PNG.
func (p *Tab) Screenshot() []byte {
	p.t.Helper()
	return must.Get(chromedp.Run(p.context, chromedp.CaptureScreenshot()))(p.t)
}

// PDF prints the page.
func (p *Tab) PDF() []byte {
	p.t.Helper()
	return must.Get(chromedp.Run(p.context, chromedp.PrintToPDF()))(p.t)
}

// Close closes the tab before the end of the test.
func (p *Tab) Close() {
	p.t.Helper()
	must.OK(p.t, chromedp.Cancel(p.context))
}

// local are the addresses that a page may read without a network.
var local = regexp.MustCompile(`^(file|blob|data|about):`)

// listenTo records an event of the tab if it is a fault.
func (p *Tab) listenTo(event any) {
	fault := ""
	switch e := event.(type) {
	case *js.EventExceptionThrown:
		fault = describe(e.ExceptionDetails)
	case *js.EventConsoleAPICalled:
		if e.Type == js.ConsoleAPICalledTypeError || e.Type == js.ConsoleAPICalledTypeAssert {
			fault = "console:"
			for _, arg := range e.Args {
				fault += fmt.Sprintf(" %s%s", arg.Value, arg.Description)
			}
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			fault = e.Entry.Text + " " + e.Entry.URL
		}
	case *network.EventRequestWillBeSent:
		if !local.MatchString(e.Request.URL) {
			fault = "request: " + e.Request.URL
		}
	}
	if fault != "" {
		p.mu.Lock()
		p.faults = append(p.faults, fault)
		p.mu.Unlock()
	}
}

// Faults returns the errors on the console of the tab, and the requests except the one for the page.
func (p *Tab) Faults() []string {
	p.Eval("0", nil) // its answer follows all earlier events
	p.mu.Lock()
	defer p.mu.Unlock()
	faults := p.faults
	for _, line := range p.leaving {
		if !browsersOwn.MatchString(line) {
			faults = append(faults, "a request leaves: "+line)
		}
	}
	return faults
}

// Violations returns the rules of axe-core 4 that the page breaks, with up to three places each; of these rules only,
// if some are named. axe-core (Mozilla Public License 2.0, so not a part of this repository) is the file $AXE, or the
// one that `make axe` downloads. Without one the test is skipped.
func (p *Tab) Violations(t testing.TB, rules ...string) (found []string) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	fetched := filepath.Join(filepath.Dir(here), "..", "..", ".deps", "axe", "axe.min.js")
	script, err := os.ReadFile(cmp.Or(os.Getenv("AXE"), fetched))
	if err != nil && os.Getenv("AXE") == "" {
		t.Skip("axe-core is not here (make axe downloads it, AXE names another axe.min.js)")
	}
	must.OK(t, err)
	options := `{ resultTypes: ["violations"] }`
	if len(rules) > 0 {
		only := must.Get(json.Marshal(rules))(t)
		options = fmt.Sprintf(`{ resultTypes: ["violations"], runOnly: %s }`, only)
	}
	p.Eval("if (!window.axe) { "+string(script)+"\n}; 0", nil)
	// A tooltip hides after a delay and then fades, and half faded it has no contrast.
	p.Eval(`new Promise(done => setTimeout(done, 300)).
		then(() => Promise.allSettled(document.getAnimations().map(a => a.finished))).then(() => 0)`, nil)
	p.Eval("axe.run(document, "+options+`).then(r => r.violations.map(v =>
		v.id + " (" + v.impact + "): " + v.nodes.slice(0, 3).map(n => n.target.join(" ")).join(", ")))`, &found)
	return found
}
