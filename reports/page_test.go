package reports

import (
	"bytes"
	"encoding/json"
	"io"
	"regexp"
	"strings"
	"testing"

	"rcgrpo/engine/artifact"
	"rcgrpo/internal/must"
	"rcgrpo/reports/page"
	"rcgrpo/stages/rl"
)

func htmlOf(t *testing.T, p *page.Page) string {
	t.Helper()
	var b bytes.Buffer
	must.OK(t, p.HTML(&b))
	return b.String()
}

func TestEqualStudiesGiveEqualBytes(t *testing.T) {
	for name, write := range map[string]func(*page.Page, io.Writer) error{"HTML": (*page.Page).HTML,
		"text":     func(p *page.Page, w io.Writer) error { return p.Text(w, 100) },
		"Markdown": (*page.Page).Markdown, "LaTeX": (*page.Page).LaTeX, "JSON": (*page.Page).JSON} {
		var pages [2]bytes.Buffer
		for i := range pages {
			must.OK(t, write(synthetic(2, 40, 30).Page(), &pages[i]))
		}
		if !bytes.Equal(pages[0].Bytes(), pages[1].Bytes()) {
			t.Errorf("%s: two pages of one study differ", name)
		}
	}
}

// hostile replaces every piece of foreign text of a study.
func hostile(text string) *Study {
	s := synthetic(1, 16, 8)
	s.Name, s.Question, s.Expect = text, text, text
	for i := range s.Arms {
		s.Arms[i].Label = text + string(rune('a'+i))
		for j := range s.Arms[i].Runs {
			s.Arms[i].Runs[j].CurveFrom = text
		}
	}
	for row := range s.scores {
		row.Category, row.Family = text+row.Category, text+row.Family
		row.Set, row.Port = text+row.Set, text
	}
	s.Compare = []Comparison{{Label: text, Pairs: [][]string{{text + "a", text + "b"}, {text, text + "c"}},
		Expect: "higher"}}
	s.Failures = []page.Failure{{Address: text, Cause: text, Log: []string{text}}}
	for i := range s.TaskSets {
		s.TaskSets[i].Label, s.TaskSets[i].Source = text+s.TaskSets[i].Label, text
		s.TaskSets[i].Tasks[0].Category = text
	}
	for _, talks := range s.Transcripts {
		talks.Label = text
		talks.Add(transcript(&rl.Trajectory{Task: text, Category: text, Failure: text, Stop: text,
			Messages: []rl.Message{{Role: text, Text: text, Calls: []string{text}}}}, text))
	}
	s.DataSets = []DataSet{{Label: text, Members: []Member{{text, text, text, text, true}},
		Summary: map[string]int{text: 2}}}
	x := transcript(&rl.Trajectory{Task: text,
		Messages: []rl.Message{{Role: text, Text: text, Calls: []string{text}}}}, "")
	s.DataSets[0].Examples = page.Transcripts{Passed: []page.Transcript{x}, Failed: []page.Transcript{x}}
	s.References = []Reference{{Name: text, URL: text, Of: map[string]int{overall: 16},
		Counts: map[string]map[string]int{text + "a": {overall: 1}, text + "b": {overall: 2}},
		Others: map[string]map[string]map[string]int{text: {text: {overall: 3}}}}}
	made := &artifact.Manifest{Kind: "endpoint", Outputs: map[string]artifact.Output{text: {Type: "endpoint",
		Files: []artifact.FileInfo{{Name: endpointFile}}}}}
	described, _ := json.Marshal(card{API: text, Model: text, Revision: text, Date: text}) // cannot fail
	s.Stages = append(s.Stages, Stage{Address: text, Manifest: made, Card: string(described)})
	for i := range s.Stages[:len(s.Stages)-1] {
		r := &s.Stages[i]
		r.Address, r.Manifest.Device, r.Manifest.Revision, r.Manifest.Key = text, text, text, text
		r.Settings[text] = `"` + text + `"`
		r.Phases[text], r.Manifest.Outputs[text] = 1, artifact.Output{Digest: text}
	}
	return s
}

func TestForeignTextStaysText(t *testing.T) {
	lib, _, err := page.Scripts()
	must.OK(t, err)
	// Our own elements are the only ones: as many as on the same page of harmless text.
	harmless := strings.Replace(htmlOf(t, hostile("x").Page()), lib, "", 1)
	for _, attack := range []string{`</script><img src=x onerror=alert(1)>`, `"><svg onload=alert(1)>`,
		`' onmouseover='alert(1)`, "`${alert(1)}`", `<!--<script>`, `|x|<b>\*[a](javascript:alert(1))`} {
		study := hostile(attack)
		html := strings.Replace(htmlOf(t, study.Page()), lib, "", 1)
		for _, tag := range []string{"<script", "</script", "<img", "<svg", "<b>", "<!--"} {
			if got, want := strings.Count(html, tag), strings.Count(harmless, tag); got > want {
				t.Errorf("%s: %d times %q in the page, want %d", attack, got, tag, want)
			}
		}
		scripts := regexp.MustCompile(`(?s)<script type="application/json"[^>]*>(.*?)</script>`)
		for _, options := range scripts.FindAllStringSubmatch(html, -1) {
			if !json.Valid([]byte(options[1])) {
				t.Errorf("%s: a figure's options are no JSON: %.80s", attack, options[1])
			}
		}
		outside := regexp.MustCompile(`(?s)<script[^>]*>.*?</script>`).ReplaceAllString(html, "")
		if strings.Contains(outside, `' onmouseover`) || strings.Contains(outside, `"><svg`) {
			t.Errorf("%s: quotes reach an attribute", attack)
		}
		var text, md bytes.Buffer
		p := hostile(attack + "\x1b[31m\a\u009b").Page()
		must.OK(t, p.Text(&text, 100))
		if strings.ContainsAny(text.String(), "\x1b\a\u009b") {
			t.Errorf("%s: control characters reach the terminal", attack)
		}
		must.OK(t, p.Markdown(&md))
		logs := regexp.MustCompile(`(?m)^    .*$`) // indented lines are code, where markup is text
		if text := logs.ReplaceAllString(md.String(), ""); strings.Contains(text, "<img") ||
			strings.Contains(text, "<script") {
			t.Errorf("%s: markup reaches the Markdown page", attack)
		}
	}
}

func TestPageLoadsNothing(t *testing.T) {
	html := htmlOf(t, synthetic(1, 40, 30).Page())
	lib, own, err := page.Scripts()
	must.OK(t, err)
	rest := strings.Replace(html, lib, "", 1)
	if len(rest) != len(html)-len(lib) || strings.Contains(rest, lib) {
		t.Error("the page does not contain the chart library exactly once")
	}
	if found := regexp.MustCompile(`(?i)(src|href)="(https?:|//)[^"]*"|@import|[ :]url\(`).FindString(rest); found != "" {
		t.Errorf("the page refers to something outside: %s", found)
	}
	if !strings.Contains(rest, `content="default-src &#39;none&#39;`) {
		t.Error("the page has no policy against connections")
	}
	for _, script := range []string{lib, own} {
		if !strings.Contains(html, "<script>"+script+"</script>") {
			t.Error("a script was changed on its way into the page, so its hash in the policy is wrong")
		}
	}
	ids := regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(rest, -1)
	seen := map[string]bool{}
	for _, id := range ids {
		if seen[id[1]] {
			t.Errorf("id %q occurs twice", id[1])
		}
		seen[id[1]] = true
	}
}

// Four arms, five seeds, 400 updates, and two more policies beside the arms.
func TestLargePageStaysBelowFourMegabytes(t *testing.T) {
	if n := len(withSources(t, synthetic(5, 200, 400))); n > 4_000_000 {
		t.Errorf("page has %d bytes, want at most 4,000,000", n)
	}
}

func TestEmptyStudyStillGivesAPage(t *testing.T) {
	s := &Study{Name: "nothing", Question: "?", Failures: []page.Failure{{Address: "stage.sft.warm",
		Cause: "failed: out of memory", Log: []string{"last line"}}}}
	html := htmlOf(t, s.Page())
	wantAll(t, html, "stage.sft.warm", "failed: out of memory", "last line")
	if strings.Contains(html, "echarts") && strings.Contains(html, "<script>") {
		t.Error("a page without figures contains the chart library")
	}
}

func TestTerminalTablesKeepWithinTheirWidth(t *testing.T) {
	var b bytes.Buffer
	must.OK(t, synthetic(3, 60, 40).Page().Text(&b, 120))
	long := 0
	for line := range strings.SplitSeq(b.String(), "\n") {
		if len([]rune(line)) > 120 {
			long++
			t.Logf("%3d: %s", len([]rune(line)), line)
		}
	}
	if long > 0 {
		t.Errorf("%d lines are longer than 120 columns", long)
	}
}

func TestFigureDataHoldsEveryRunAndEveryUpdate(t *testing.T) {
	s := &Study{Arms: []Arm{{Label: "a",
		Runs: []SeedRun{logging(1, "reward", 0.5, 0.25), logging(2, "reward", 1, 0, 0.125)}}}}
	want := [][]string{{"update", "a, seed 1", "a, seed 2"}, {"1", "0.5", "1"}, {"2", "0.25", "0"}, {"3", "", "0.125"}}
	equal(t, "data", curveFigures[0].figure(s).CSV(), want)
}
