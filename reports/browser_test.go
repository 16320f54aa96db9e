package reports

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"html"
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

// browserChecks runs before the page's own scripts, where its policy does not hold yet, and leaves what it found in an
// attribute of the document: errors, charts without a drawing, faults of accessibility, and the milliseconds until the
// page answered for the first time after its scripts were read and until the last chart in sight was drawn.
const browserChecks = `
const found = { errors: [], blank: [], charts: 0, axe: [], interactive: 0, drawn: 0 };
addEventListener("error", e => found.errors.push(String(e.message || e.target.outerHTML)), true);
addEventListener("unhandledrejection", e => found.errors.push(String(e.reason)));
addEventListener("securitypolicyviolation", e => found.errors.push("policy: " + e.violatedDirective + " " + e.blockedURI));
const complain = console.error; console.error = (...words) => { found.errors.push(words.join(" ")); complain(...words); };
addEventListener("DOMContentLoaded", () => setTimeout(() => { found.interactive = performance.now(); }, 0));
addEventListener("load", async () => {
  document.querySelectorAll("details").forEach(d => { if (d.matches(".more")) d.open = true; });
  const charts = [...document.querySelectorAll(".chart")];
  for (let i = 0; i < 600 && charts.some(c => !c.querySelector("canvas, svg")); i++) await new Promise(r => setTimeout(r, 20));
  await new Promise(r => setTimeout(r, 300));
  found.drawn = performance.now();
  for (const chart of charts) {
    found.charts++;
    const canvas = chart.querySelector("canvas");
    const pixels = canvas && canvas.width && canvas.height ? canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data : [];
    const colours = new Set();
    for (let i = 0; i < pixels.length && colours.size < 4; i += 4) if (pixels[i + 3] > 40) colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
    if (colours.size < 4) found.blank.push(chart.id);
  }
  const cell = document.querySelector("main td[id]");
  if (cell) cell.click();
  for (let i = 0; i < 100 && !document.querySelector("aside.source:not([hidden])"); i++) await new Promise(r => setTimeout(r, 20));
  found.source = (document.querySelector("aside.source:not([hidden])") || {}).textContent || "";
  if (window.axe) {
    const result = await axe.run(document, { resultTypes: ["violations"] });
    found.axe = result.violations.filter(v => v.impact === "serious" || v.impact === "critical").map(v => v.id + ": " + v.nodes.slice(0, 3).map(n => n.target.join(" ")).join(", "));
    found.axeRan = true;
  }
  for (const r of performance.getEntriesByType("resource")) if (!/^(blob|data):/.test(r.name)) found.errors.push("loaded " + r.name);
  document.documentElement.setAttribute("data-found", JSON.stringify(found));
});
`

// browsersOwn are requests that Chromium makes whatever page it shows: updates, its clock, its account.
var browsersOwn = regexp.MustCompile(`^(CONNECT |[A-Z]+ https?://)(clients\d*\.google\.com|update\.googleapis\.com|accounts\.google\.com|optimizationguide-pa\.googleapis\.com|safebrowsing\.googleapis\.com)[:/ ]`)

type browserFound struct {
	Errors, Blank, Axe []string
	Charts             int
	Interactive, Drawn float64
	AxeRan             bool
	Source             string
}

// inBrowser opens a page in headless Chromium, whose every connection would go to a listener of ours.
func inBrowser(t *testing.T, page []byte, flags ...string) browserFound {
	t.Helper()
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Skip("no chromium on this machine")
	}
	proxy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	var mu sync.Mutex
	var requests []string // request lines
	go func() {
		for {
			c, err := proxy.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			mu.Lock()
			requests = append(requests, strings.TrimSpace(line))
			mu.Unlock()
			c.Close()
		}
	}()
	checks := browserChecks
	if axe := axeScript(); axe != "" {
		text, err := os.ReadFile(axe)
		if err != nil {
			t.Fatal(err)
		}
		checks = strings.ReplaceAll(string(text), "</script", `<\/script`) + ";" + checks
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "page.html")
	page = bytes.Replace(page, []byte("<head>"), []byte("<head><script>"+checks+"</script>"), 1)
	if err := os.WriteFile(file, page, 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	args := append([]string{"--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-default-apps", "--disable-features=OptimizationHints,MediaRouter,Translate",
		"--user-data-dir=" + filepath.Join(dir, "profile"), "--proxy-server=" + proxy.Addr().String(), "--proxy-bypass-list=<-loopback>",
		"--window-size=1280,900", "--timeout=60000", "--virtual-time-budget=60000", "--dump-dom"}, flags...)
	command := exec.CommandContext(ctx, browser, append(args, "file://"+file)...)
	command.WaitDelay = 5 * time.Second
	out, err := command.Output()
	if err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Fatalf("%s: %v", browser, err)
	}
	m := regexp.MustCompile(`data-found="([^"]*)"`).FindSubmatch(out)
	if m == nil {
		t.Fatalf("the page did not come to its end; %d bytes of DOM", len(out))
	}
	var found browserFound
	if err := json.Unmarshal([]byte(html.UnescapeString(string(m[1]))), &found); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, line := range requests {
		if !browsersOwn.MatchString(line) {
			t.Errorf("a request leaves: %s", line)
		}
	}
	return found
}

// axeScript is the file of axe-core (Mozilla Public License 2.0, so not a part of this repository): $AXE, or what npm put
// beside us; "" without one.
func axeScript() string {
	for _, path := range []string{os.Getenv("AXE"), "../node_modules/axe-core/axe.min.js", "../.deps/node_modules/axe-core/axe.min.js"} {
		if _, err := os.Stat(path); path != "" && err == nil {
			return path
		}
	}
	return ""
}

func TestPageInABrowser(t *testing.T) {
	s := synthetic(2, 60, 60)
	p := s.Page()
	p.Evidence = &Evidence{Format: EvidenceFormat, Name: "drills"} // sources of cells, and no artifacts
	page := []byte(htmlOf(t, p))
	for name, flags := range map[string][]string{"light": nil, "dark and narrow": {"--blink-settings=preferredColorScheme=0", "--window-size=360,800"}} {
		t.Run(name, func(t *testing.T) {
			found := inBrowser(t, page, flags...)
			if len(found.Errors) > 0 {
				t.Errorf("errors: %q", found.Errors)
			}
			if want := strings.Count(string(page), `class="chart"`); found.Charts != want || want < 20 || len(found.Blank) > 0 {
				t.Errorf("%d charts, of which blank: %q; want %d drawn", found.Charts, found.Blank, want)
			}
			if !strings.Contains(found.Source, "share of reward 1") {
				t.Errorf("a clicked cell shows %q", found.Source)
			}
			if !found.AxeRan {
				t.Log("axe-core is not here (set AXE=…/axe.min.js): accessibility not checked")
			}
			if len(found.Axe) > 0 {
				t.Errorf("axe: %q", found.Axe)
			}
		})
	}
}

// Four arms, five seeds, 400 updates, and two more policies. The browser's time stands still while it waits, so that what
// is logged is a hint only; on two cores busy with 15 processes the page was read after 0.43 to 1.05 s, six times.
func TestLargePageIsDrawnWhole(t *testing.T) {
	if testing.Short() {
		t.Skip("opens a browser")
	}
	found := inBrowser(t, []byte(htmlOf(t, synthetic(5, 200, 400).Page())))
	t.Logf("interactive after %.0f ms, all charts drawn after %.0f ms", found.Interactive, found.Drawn)
	if len(found.Errors) > 0 || len(found.Blank) > 0 {
		t.Errorf("errors %q, blank %q", found.Errors, found.Blank)
	}
}
