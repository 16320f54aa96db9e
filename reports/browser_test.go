package reports

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"

	"rcgrpo/internal/browser"
	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

// firstAnswer runs before the page's own scripts: as soon as the document is read it clicks the first number, and
// keeps the text of its source.
const firstAnswer = `
addEventListener("DOMContentLoaded", () => setTimeout(() => {
  const cell = document.querySelector("main td[id]");
  const shown = () => document.querySelector("aside.source:not([hidden])");
  if (!cell) return;
  cell.click();
  const look = () => {
    if (shown()) window.answered = shown().textContent;
    else setTimeout(look, 1);
  };
  look();
}, 0));
`

// drawnCharts opens all folds, waits until every figure is drawn, and returns their number and the blank ones: a
// drawing has at least four colours.
const drawnCharts = `(async () => {
  document.querySelectorAll("details.more, details.fold").forEach(d => { d.open = true; });
  const charts = [...document.querySelectorAll(".chart")];
  for (let i = 0; i < 1500 && charts.some(c => !c.querySelector("canvas, svg")); i++)
    await new Promise(r => setTimeout(r, 20));
  await new Promise(r => setTimeout(r, 100));
  const blank = charts.filter(chart => {
    const canvas = chart.querySelector("canvas");
    const pixels = canvas && canvas.width && canvas.height
      ? canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data : [];
    const colours = new Set();
    for (let i = 0; i < pixels.length && colours.size < 4; i += 4)
      if (pixels[i + 3] > 40) colours.add(pixels[i] << 16 | pixels[i + 1] << 8 | pixels[i + 2]);
    return colours.size < 4;
  });
  return { charts: charts.length, blank: blank.map(c => c.id) };
})()`

// firstEpisode opens the first episode of the transcripts and returns its text.
const firstEpisode = `(async () => {
  const until = async found => { while (!found()) await new Promise(r => setTimeout(r, 5)); return found(); };
  const talks = document.querySelector("details.talks");
  for (let fold = talks; fold; fold = fold.parentElement.closest("details")) fold.open = true;
  const talk = await until(() => talks.querySelector("details.talk"));
  talk.open = true;
  return (await until(() => talk.children.length > 1 && talk)).textContent;
})()`

type drawing struct {
	Charts int
	Blank  []string
}

// pageFile writes a page for the browser and returns its address.
func pageFile(t *testing.T, html []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "$(a)'s page.html")
	must.OK(t, os.WriteFile(file, html, 0o644))
	return (&url.URL{Scheme: "file", Path: file}).String()
}

// withSources returns the page of a study with the sources of its cells, which no store contains.
func withSources(t *testing.T, s *Study) []byte {
	t.Helper()
	p := s.Page()
	p.Evidence = must.Get((&Evidence{Format: EvidenceFormat, Name: s.Name}).Packed(p))(t)
	return []byte(htmlOf(t, p))
}

var views = map[string]browser.View{"light": browser.Light(1280, 900), "dark": browser.Dark(1280, 900),
	"360 pixels wide": browser.Light(360, 800)}

// TestPageInABrowser opens a page of every piece that there is, or with $RCGRPO_PAGE the page in that file (make
// browser).
func TestPageInABrowser(t *testing.T) {
	study := synthetic(2, 60, 60)
	study.Maps = []Map{{Title: "Map", Compare: "reward conditioning", X: "token_gap", Y: "zero_variance"}}
	helper := rl.Segment{Messages: []rl.Message{{Role: rl.RoleUser, Text: "Help me."},
		{Role: rl.RoleAssistant, Text: "[help()]"}}}
	own := transcript(&rl.Trajectory{Task: "of an agent", Segments: []rl.Segment{helper}}, "")
	study.Transcripts[0].Failed = append([]page.Transcript{own}, study.Transcripts[0].Failed...)
	html := withSources(t, study)
	if file := os.Getenv("RCGRPO_PAGE"); file != "" {
		var err error
		if html, err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	address, chromium := pageFile(t, html), browser.Open(t)
	for name, v := range views {
		t.Run(name, func(t *testing.T) {
			p := chromium.Open(t, address, v, firstAnswer)
			var found drawing
			p.Eval(drawnCharts, &found)
			if want := strings.Count(string(html), `class="chart"`); found.Charts != want || want < 10 || len(found.Blank) > 0 {
				t.Errorf("%d charts, of which blank: %q; want %d drawn", found.Charts, found.Blank, want)
			}
			var source string
			p.Eval(`window.answered || ""`, &source)
			if !strings.Contains(source, `To recompute it: rcgrpo reproduce '$(a)'\''s page.html#`) {
				t.Errorf("a clicked cell shows %q", source)
			}
			if os.Getenv("RCGRPO_PAGE") == "" {
				var shown string
				p.Eval(firstEpisode, &shown)
				if !strings.Contains(shown, "Sequence 2 of 2: its first request continues no earlier reply") ||
					!strings.Contains(shown, "Help me.") {
					t.Errorf("the episode of an agent shows %q", shown)
				}
			}
			var ground string
			p.Eval(`getComputedStyle(document.body).backgroundColor`, &ground)
			if (ground != "rgb(255, 255, 255)") != v.Dark {
				t.Errorf("the ground is %s", ground)
			}
			var beyond float64
			p.Eval(`document.documentElement.scrollWidth - innerWidth`, &beyond)
			if beyond > 0 {
				t.Errorf("the page is %v pixels wider than the window", beyond)
			}
			var cut []string
			p.Eval(`[...document.querySelectorAll("tbody th")].filter(h => h.scrollWidth > h.clientWidth + 1)
				.map(h => h.textContent)`, &cut)
			if len(cut) > 0 {
				t.Errorf("names of rows run into the next column: %q", cut)
			}
			t.Run("accessibility", func(t *testing.T) {
				if found := p.Violations(t); len(found) > 0 {
					t.Errorf("axe: %q", found)
				}
			})
			if faults := p.Faults(); len(faults) > 0 {
				t.Errorf("%q", faults)
			}
		})
	}
}

func TestPageByKeyboard(t *testing.T) {
	p := browser.Open(t).Open(t, pageFile(t, withSources(t, synthetic(1, 40, 20))), browser.Light(1280, 900), "")
	focus := func() (at string) {
		p.Eval(`(e => e.id || e.className || e.tagName.toLowerCase())(document.activeElement)`, &at)
		return at
	}
	source := func() (text string) {
		p.Eval(`(async () => {
			for (let i = 0; i < 100; i++) {
				const e = document.querySelector("aside.source:not([hidden])");
				if (e) return e.textContent;
				await new Promise(r => setTimeout(r, 10));
			}
			return "";
		})()`, &text)
		return text
	}
	p.Press("Tab")
	equal(t, "the first Tab, past the contents", focus(), "skip")
	for range 40 {
		if p.Press("Tab"); focus() == "scroll" {
			break
		}
	}
	p.Press("Enter")
	if at := focus(); at != "cross-test.r1c1" {
		t.Fatalf("Enter on a table reaches %q, want its first cell", at)
	}
	p.Press("ArrowRight", "ArrowDown")
	equal(t, "right and down", focus(), "cross-test.r2c2")
	p.Press("Enter")
	if text := source(); !strings.Contains(text, "share of reward 1") || !strings.Contains(text, "#cross-test.r2c2") {
		t.Errorf("Enter on a number shows %q", text)
	}
	p.Press("Escape")
	var hidden bool
	if p.Eval(`document.querySelector("aside.source").hidden`, &hidden); !hidden {
		t.Error("Escape leaves the source open")
	}
}

func TestPageDownloadsAndPrints(t *testing.T) {
	p := browser.Open(t).Open(t, pageFile(t, withSources(t, synthetic(2, 40, 20))), browser.Dark(1280, 900), "")
	p.Eval(drawnCharts, nil)
	var files map[string]string
	p.Eval(`(async () => {
		const files = {};
		HTMLAnchorElement.prototype.click = function () { files[this.download] = this.href; };
		document.querySelector("#fig-reward button[data-png]").click();
		document.querySelector("#fig-reward button[data-file]").click();
		for (let i = 0; i < 200 && Object.keys(files).length < 2; i++) await new Promise(r => setTimeout(r, 10));
		for (const name in files) if (files[name].startsWith("blob:")) files[name] = await new Promise(done => {
			const request = new XMLHttpRequest();
			request.open("GET", files[name]);
			request.onload = () => done(request.responseText);
			request.onerror = () => done("not read");
			request.send();
		});
		document.querySelector("#fig-reward details[data-csv]").open = true;
		for (let i = 0; i < 200 && !document.querySelector("#fig-reward table").rows.length; i++)
			await new Promise(r => setTimeout(r, 10));
		files.rows = String(document.querySelector("#fig-reward table").rows.length);
		return files;
	})()`, &files)
	if png := files["fig-reward.png"]; !strings.HasPrefix(png, "data:image/png;base64,") || len(png) < 10_000 {
		t.Errorf("PNG: got %.60q", png)
	}
	if _, ok := files["fig-reward.csv"]; !ok {
		t.Errorf("no CSV among %v", slices.Sorted(maps.Keys(files)))
	}
	equal(t, "rows behind the fold, a head and 20 updates", files["rows"], "21")
	pdf := p.PDF()
	if pages := len(regexp.MustCompile(`/Type\s*/Page\b`).FindAll(pdf, -1)); !bytes.HasPrefix(pdf, []byte("%PDF")) ||
		pages < 3 {
		t.Errorf("printed on %d pages", pages)
	}
}

// The first screen has the question, the expectation, the answers, the limits and the forest plot, and on a wide screen
// the table of the arms and the line of the run. The proposed method is in the plot's title and in each answer. On a
// phone most sections are folded, and the verdict of a claim is beside its difference.
func TestFirstScreenHoldsTheAnswer(t *testing.T) {
	study := synthetic(3, 40, 20)
	study.Notes = []string{"A tiny model."}
	for i := range study.Compare[:2] {
		study.Compare[i].Pairs = nil
		for _, other := range []string{"SFT + GRPO", "SFT + RC-GRPO", "RCTP-FT + GRPO"} {
			study.Compare[i].Pairs = append(study.Compare[i].Pairs, []string{other, "RCTP-FT + RC-GRPO"})
		}
	}
	chromium, address := browser.Open(t), pageFile(t, withSources(t, study))
	for _, v := range []browser.View{browser.Light(1280, 800), browser.Light(390, 844), browser.Light(360, 920)} {
		p := chromium.Open(t, address, v, "")
		var shown struct {
			Bottoms map[string]float64
			Beyond  float64
			Title   string
			Answers []string
		}
		p.Eval(`(async () => {
			for (let i = 0; i < 500 && !document.querySelector("#fig-answer canvas"); i++)
				await new Promise(r => setTimeout(r, 10));
			const bottoms = {}, wide = innerWidth > 640, scroll = document.querySelector(".first .scroll");
			for (const [name, selector] of [["question", "h1"], ["expectation", "header .run"], ["answers", ".answers"],
				["limits", ".limits"], ["forest plot", "#fig-answer-chart"], ["table", wide && ".first .block table"],
				["run", wide && ".made"]])
				if (selector) bottoms[name] = document.querySelector(selector).getBoundingClientRect().bottom;
			return { bottoms, beyond: scroll.scrollWidth - scroll.clientWidth,
				title: document.querySelector("#fig-answer h3").innerText,
				answers: [...document.querySelectorAll(".answers li")].map(e => e.innerText) };
		})()`, &shown)
		for name, bottom := range shown.Bottoms {
			if bottom > float64(v.Height) {
				t.Errorf("%d pixels wide: %s ends at %.0f, below the first screen", v.Width, name, bottom)
			}
		}
		if shown.Beyond > 0 {
			t.Errorf("%d pixels wide: the table is %.0f pixels too wide", v.Width, shown.Beyond)
		}
		for _, text := range append(shown.Answers, shown.Title) {
			if !strings.Contains(text, "RCTP-FT + RC-GRPO") {
				t.Errorf("%d pixels wide: %q lacks the method", v.Width, text)
			}
		}
		var screens, right float64
		p.Eval(`document.documentElement.scrollHeight / innerHeight`, &screens)
		p.Eval(`document.querySelector("#differences details").open = true,
			document.getElementById("compare-test.r1c3").getBoundingClientRect().right`, &right)
		if v.Width < 640 && screens > 12 || right > float64(v.Width) {
			t.Errorf("%d pixels wide: got %.0f screens and a verdict that ends at %.0f pixels", v.Width, screens, right)
		}
	}
}

func TestReadingAidsOfASection(t *testing.T) {
	p := browser.Open(t).Open(t, pageFile(t, withSources(t, synthetic(2, 40, 150))), browser.Light(1280, 900), "")
	p.Eval(drawnCharts, nil)
	var empty []string
	p.Eval(`(() => {
		const empty = [], arms = ["SFT + GRPO", "SFT + RC-GRPO", "RCTP-FT + GRPO", "RCTP-FT + RC-GRPO"];
		for (const id of ["fig-reward", "fig-entropy", "fig-kl"]) {
			const place = document.getElementById(id + "-chart"), chart = echarts.getInstanceByDom(place);
			for (let update = 1; update <= 150; update += 11) {
				const x = chart.convertToPixel({ xAxisIndex: 0 }, update);
				chart.dispatchAction({ type: "showTip", x, y: 100 });
				if (!arms.every(arm => place.textContent.includes(arm))) empty.push(id + " " + update);
			}
		}
		return empty;
	})()`, &empty)
	if len(empty) > 0 {
		t.Errorf("%d tooltips lack an arm, the first at %s", len(empty), empty[0])
	}
	var found struct {
		Cursor   string
		Shown    []string
		Legends  int
		TooWide  []string
		Overflow float64
	}
	p.Eval(`(async () => {
		const figures = [...document.querySelectorAll("#training figure")].map(f => f.id);
		const chart = id => echarts.getInstanceByDom(document.getElementById(id + "-chart"));
		const reward = chart("fig-reward"), x = reward.convertToPixel({ xAxisIndex: 0 }, 75);
		reward.dispatchAction({ type: "showTip", x, y: 100 });
		await new Promise(r => setTimeout(r, 200));
		const cursor = document.getElementById("fig-entropy-chart").textContent;
		const legend = document.querySelector("#training .legend.shared");
		[...legend.children].find(b => b.textContent === "SFT + GRPO").click();
		const shown = figures.filter(id => {
			const option = chart(id).getOption();
			return option.series.some(s => s.name === "SFT + GRPO") && option.legend[0].selected["SFT + GRPO"] !== false;
		});
		const folds = [...document.querySelectorAll("details[data-csv]")].slice(0, 8);
		folds.forEach(f => { f.open = true; });
		for (let i = 0; i < 300 && folds.some(f => !f.querySelector("table").rows.length); i++)
			await new Promise(r => setTimeout(r, 10));
		const right = e => e.getBoundingClientRect().right;
		const tooWide = folds.filter(f => right(f) > right(f.closest("figure")) + 1);
		return { cursor, shown, legends: document.querySelectorAll("#training .legend.shared").length,
			tooWide: tooWide.map(f => f.closest("figure").id), overflow: document.documentElement.scrollWidth - innerWidth };
	})()`, &found)
	if !strings.Contains(found.Cursor, "update 75") {
		t.Errorf("the cursor of another figure shows %.80q, want update 75", found.Cursor)
	}
	if len(found.Shown) > 0 || found.Legends != 1 {
		t.Errorf("%d legends; figures that still show the hidden arm: %q", found.Legends, found.Shown)
	}
	if len(found.TooWide) > 0 || found.Overflow > 0 {
		t.Errorf("data that are wider than their card: %q; the page is %v pixels too wide", found.TooWide, found.Overflow)
	}
	if faults := p.Faults(); len(faults) > 0 {
		t.Errorf("%q", faults)
	}
}

// TestScreenshots takes the pictures of docs/images from the page that $REPORTS_SHOTS names (make images).
func TestScreenshots(t *testing.T) {
	path := os.Getenv("REPORTS_SHOTS")
	if path == "" {
		t.Skip("set REPORTS_SHOTS=PAGE to take the pictures of docs/images, and REPORTS_FIGURE=ID to take one figure")
	}
	html := must.Get(os.ReadFile(path))(t)
	address, chromium := pageFile(t, html), browser.Open(t)
	views := map[string]browser.View{"page-light": browser.Light(1180, 1500), "page-dark": browser.Dark(1180, 1500),
		"page-narrow": browser.Light(360, 1410)}
	figure := os.Getenv("REPORTS_FIGURE")
	if figure != "" {
		views = map[string]browser.View{strings.TrimPrefix(figure, "fig-"): browser.Light(900, 410)}
	}
	for name, v := range views {
		p := chromium.Open(t, address, v, "")
		browser.Do(p, emulation.SetScrollbarsHidden, emulation.SetScrollbarsHiddenParams{Hidden: true})
		p.Eval(drawnCharts, nil)
		p.Eval(fmt.Sprintf(`(document.getElementById(%q) || document.body).scrollIntoView({ behavior: "instant" })`,
			cmp.Or(figure, "-")), nil)
		must.OK(t, os.WriteFile(filepath.Join("..", "docs", "images", name+".png"), p.Screenshot(), 0o644))
	}
}
