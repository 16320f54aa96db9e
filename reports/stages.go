package reports

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize/english"

	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/runs"
	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
)

// PaperSettings returns the values of the paper's profile by kind and setting: the values in its settings tables,
// equations and text, and for open settings the defaults of the kinds. A test compares them with the kinds.
var PaperSettings = sync.OnceValue(func() map[string]map[string]string {
	tokens := map[string]string{"tokens.position": `"first_user"`, "tokens.init": `"mean"`}
	tuning := map[string]string{"lr": "1e-05", "batch": "16", "schedule.shape": `"cosine"`, "schedule.warmup": "0.03",
		"optimizer.weight_decay": "0"}
	rl := map[string]string{
		"lr": "1e-06", "group": "5", "updates": "350", "zero_variance": `"keep"`, "entropy": "0",
		"kl.beta": "0.1", "kl.estimator": `"k3"`, "kl.place": `"loss"`, "kl.aggregate": `"loss"`,
		"kl.log_clamp": "0", "kl.value_clamp": "0",
		"clip.low": "0.2", "clip.high": "0.2", "clip.dual": "0",
		"ratio.level": `"trajectory"`, "ratio.log_clamp": "20", "ratio.only_above": "false",
		"minibatches": "0", "passes": "1", "sampler_correction.mode": `"off"`, "sampler_correction.cap": "2",
		"loss.aggregate": `"trajectory_sum"`, "loss.rows": `"all"`, "loss.scale": "0", "loss.count_eps": "0",
		"advantage.scale": `"group_std"`, "advantage.ddof": "0",
		"advantage.eps": "1e-06", "advantage.lone": `"formula"`,
		"schedule.shape": `"constant"`, "schedule.warmup": "0", "optimizer.weight_decay": "0.01",
	}
	profile := func(parts ...map[string]string) map[string]string {
		all := map[string]string{"schedule.final": "0", "optimizer.beta2": "0.999",
			"optimizer.eps": "1e-08", "optimizer.clip_norm": "1"}
		for _, part := range parts {
			maps.Copy(all, part)
		}
		return all
	}
	return map[string]map[string]string{
		"sft":     profile(tuning, map[string]string{"epochs": "2"}),
		"rctp-ft": profile(tuning, tokens, map[string]string{"epochs": "5"}),
		"grpo":    profile(rl, map[string]string{"batch": "64"}),
		"rc-grpo": profile(rl, tokens, map[string]string{"batch": "256", "tokens.high": "0.5", "tokens.allocation": `"iid"`,
			"tokens.learn": `"all"`, "tokens.baseline": `"group"`}),
	}
})

// departure returns the paper's value of a setting if a stage of that kind has another value. The position "checkpoint"
// is that of the stage that trained the tokens, whose cell is marked.
func departure(kind, setting, value string) (paper string, departs bool) {
	paper, known := PaperSettings()[kind][setting]
	inherited := setting == "tokens.position" && value == `"checkpoint"`
	return paper, known && !inherited && !sameValue(paper, value)
}

// settingsColumn holds the settings of a training stage.
type settingsColumn struct {
	Stage
	head      string
	models    []string // for_each keys of the modules whose stages have these settings: "qwen"
	instances []string // manifests of the stage's instances, whose settings may differ
}

// settingsColumns returns a column for each training stage, and one for each instance with other settings. Stages of
// the instances of a module share a column while their settings are equal.
func (s *Study) settingsColumns() []*settingsColumn {
	var all []*settingsColumn
	instances, models := map[string][]string{}, map[string][]string{} // by stage without keys of modules
	columns := map[string][]*settingsColumn{}
	for _, r := range s.Stages {
		if PaperSettings()[r.Kind] == nil {
			continue
		}
		name := lang.StageName(r.Address)
		stage, model := moduleKey.ReplaceAllString(name, ""), strings.TrimSuffix(moduleKeys(artifact.Ref{Module: name}), "/")
		instances[stage] = append(instances[stage], manifestAddress(r.Address))
		at := slices.IndexFunc(columns[stage], func(c *settingsColumn) bool { return maps.Equal(c.Settings, r.Settings) })
		if at < 0 {
			column := &settingsColumn{Stage: r, head: name}
			if len(columns[stage]) > 0 && (model == "" || slices.Contains(models[stage], model)) {
				column.head = lang.TrimStage(r.Address) // another instance of the same stage
			}
			at = len(columns[stage])
			all, columns[stage] = append(all, column), append(columns[stage], column)
		}
		if c := columns[stage][at]; model != "" && !slices.Contains(models[stage], model) {
			c.models, models[stage] = append(c.models, model), append(models[stage], model)
			c.head = fmt.Sprintf("%s (%s)", moduleName().ReplaceAllString(stage, ""), strings.Join(c.models, ", "))
		}
	}
	for _, c := range all {
		c.instances = instances[moduleKey.ReplaceAllString(lang.StageName(c.Address), "")]
	}
	return all
}

// moduleName matches a module in the name of a stage.
var moduleName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`module\.[^.]*\.`) })

// cell shows a setting. A departure from the paper is marked.
func (c *settingsColumn) cell(name string) page.Cell {
	value, ok := c.Settings[name]
	if !ok {
		return page.Text("")
	}
	cell := page.Text("%s", strings.Trim(value, `"`)).
		From(page.Source{From: c.instances, Rows: "settings." + name, By: "setting, defaults included"})
	if paper, departs := departure(c.Kind, name, value); departs {
		cell.Mark = page.MarkDiffers
		cell = cell.With("paper: %s", strings.Trim(paper, `"`))
	}
	if slices.Contains(c.NoEffect, name) {
		cell = cell.With("no effect here")
	}
	return cell
}

func (s *Study) settingsTable() *page.Table {
	all := s.settingsColumns()
	t := &page.Table{ID: "settings", Title: "All settings of the training stages", Folded: true,
		Columns: page.Columns("<Setting"),
		Notes: []string{"Defaults included. \"No effect here\": a default without effect in combination with the stage's " +
			"other settings."}}
	names := map[string]bool{}
	for _, c := range all {
		t.Columns = append(t.Columns, page.Column{Name: c.head})
		for name := range c.Settings {
			names[name] = true
		}
	}
	for _, name := range sortedKeys(names) {
		cells := []page.Cell{page.Text("%s", name)}
		for _, c := range all {
			cells = append(cells, c.cell(name))
		}
		t.Add(page.NoArm, cells...)
	}
	return t
}

// departuresTable lists the settings in which a stage departs from the paper.
func (s *Study) departuresTable() *page.Table {
	t, departures := s.settingsTable(), 0
	for i := range t.Rows {
		marked := 0
		for _, c := range t.Rows[i].Cells {
			if c.Mark == page.MarkDiffers {
				marked++
			}
		}
		t.Rows[i].Omitted = marked == 0
		departures += marked
	}
	t.ID, t.Title, t.Folded = "departures", "Departures from the paper", false
	t.Notes = []string{fmt.Sprintf("Marked: %s from the paper's profile (its tables, equations and text; for open "+
		"settings, the defaults of this program).", english.Plural(departures, "departure", ""))}
	return t
}

// sameValue compares canonical JSON, numbers by value.
func sameValue(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return a == b
	}
	return x == y
}

// runsTable shows the cost of the shown artifacts, from their manifests.
func (s *Study) runsTable() *page.Table {
	phases := map[string]bool{}
	for _, r := range s.Stages {
		for name := range r.Phases {
			phases[name] = true
		}
	}
	t := &page.Table{ID: "runs", Title: "Cost of the stages"}
	t.Columns = append(page.Columns("<Stage", "Time", "Processors"), page.Columns(sortedKeys(phases)...)...)
	t.Columns = append(t.Columns, page.Columns("Peak memory", "<Device")...)
	sum, cpu := 0.0, 0.0
	for _, r := range s.Stages {
		m := r.Manifest
		if m == nil {
			continue
		}
		recorded := func(rows string) page.Source { return page.SourceOf(manifestAddress(r.Address), rows, "as recorded") }
		took := func(seconds float64, source page.Source) page.Cell {
			return page.Cell{Text: runs.DurationText(seconds), Value: &seconds, Source: source}
		}
		cells := []page.Cell{page.Text("%s", lang.TrimStage(r.Address)), took(m.Seconds, recorded("seconds")), {}}
		if m.CPUSeconds > 0 {
			cells[2] = took(m.CPUSeconds, recorded("cpu_seconds"))
		}
		for _, name := range sortedKeys(phases) {
			cells = append(cells, page.Cell{})
			if v, ok := r.Phases[name]; ok {
				cells[len(cells)-1] = took(v, page.SourceOf(manifestAddress(r.Address),
					name+"_s of the times beside the metrics", "sum over the updates"))
			}
		}
		peak := ""
		if m.PeakBytes > 0 {
			peak = megabytes(m.PeakBytes)
		}
		t.Add(page.NoArm, append(cells, page.Text("%s", peak).From(recorded("peak_bytes")),
			page.Text("%s", m.Device).From(recorded("device")))...)
	}
	for _, m := range s.results() {
		sum += m.Seconds
		cpu += m.CPUSeconds
	}
	t.Notes = []string{"From the manifests of the shown artifacts, including those of earlier runs: " +
		runs.DurationText(sum) + " of stage time in total, in which processors computed for " +
		runs.DurationText(cpu) + "."}
	return t
}

// results returns the manifest of each result once: several stages may share one.
func (s *Study) results() []*artifact.Manifest {
	var all []*artifact.Manifest
	seen := map[string]bool{} // keys
	for _, r := range s.Stages {
		if m := r.Manifest; m != nil && !seen[m.Key] {
			seen[m.Key] = true
			all = append(all, m)
		}
	}
	return all
}

// megabytes formats a number of bytes. One unit keeps a column comparable.
func megabytes(n int64) string { return fmt.Sprintf("%d MB", (n+500_000)/1_000_000) }

// mostLanes is the number of lanes that fit on a printed page.
const mostLanes = 28

// timelineFigures show when the artifacts of the page were made: a lane for each stage, a bar for each of its seeds, in
// figures of at most mostLanes stages. Times without a running stage are left out, because the artifacts may come from
// runs on different days.
func (s *Study) timelineFigures() (parts []page.Part) {
	made := slices.DeleteFunc(slices.Clone(s.Stages), func(r Stage) bool {
		return r.Manifest.Started.IsZero() || r.Manifest.Seconds <= 0
	})
	slices.SortStableFunc(made, func(a, b Stage) int {
		return cmp.Or(a.Manifest.Started.Compare(b.Manifest.Started), strings.Compare(a.Address, b.Address))
	})
	var lanes []string
	var bars []page.Point
	var rows [][]string // rows of the data, one for each bar
	source := page.Source{By: "start and duration as recorded"}
	idle, busyUntil := 0.0, 0.0 // seconds since the first start
	for _, r := range made {
		source.From = append(source.From, manifestAddress(r.Address))
		from, took := r.Manifest.Started.Sub(made[0].Manifest.Started).Seconds(), r.Manifest.Seconds
		idle += max(0, from-busyUntil)
		busyUntil = max(busyUntil, from+took)
		from -= idle
		name, seed, _ := strings.Cut(lang.TrimStage(r.Address), "@")
		label := runs.DurationText(took)
		if seed != "" {
			label = "seed " + seed + ": " + label
		}
		bars = append(bars, page.Point{Value: float64(page.IndexOrAppend(&lanes, name)), Label: label,
			Interval: stats.Interval{Low: from, High: from + took}})
		rows = append(rows, []string{name, seed, page.Plain(from), page.Plain(from + took)})
	}
	for first := 0; first < len(lanes); first += mostLanes {
		f := &page.Figure{
			ID: "fig-timeline", Title: "Time line of the stages", X: "seconds with a running stage", Y: "stage", Folded: true,
			Note:  "From the manifests of the shown artifacts. Times in which none of these stages ran are left out.",
			Lanes: lanes[first:min(first+mostLanes, len(lanes))], Source: source,
			Data: [][]string{{"stage", "seed", "from, s", "to, s"}},
		}
		if len(f.Lanes) < len(lanes) {
			f.Title += fmt.Sprintf(", stages %d to %d of %d", first+1, first+len(f.Lanes), len(lanes))
		}
		series := page.Series{Name: "stages", Arm: page.NoArm}
		for i, bar := range bars {
			if bar.Value -= float64(first); 0 <= bar.Value && bar.Value < float64(len(f.Lanes)) {
				series.Points = append(series.Points, bar)
				f.Data = append(f.Data, rows[i])
			}
		}
		f.Add(series)
		parts = append(parts, page.Part{Figure: f})
	}
	return parts
}

func (s *Study) artifactsTable() *page.Table {
	t := &page.Table{ID: "evidence", Title: "Artifacts behind this page", Folded: true,
		Columns: page.Columns("<Stage", "<Port", "<Digest", "<Key", "<Code"),
		Notes: []string{"A digest is the hash of the names and contents of an artifact's files; a key is the hash of " +
			"all inputs of the stage. Equal keys give equal digests."}}
	for _, r := range s.Stages {
		for _, port := range sortedKeys(r.Manifest.Outputs) {
			cells := []page.Cell{page.Text("%s", lang.TrimStage(r.Address)), page.Text("%s", port)}
			for _, text := range []string{page.Prefix(r.Manifest.Outputs[port].Digest, 16), page.Prefix(r.Manifest.Key, 16),
				page.Prefix(r.Manifest.Revision, 12)} {
				recorded := page.SourceOf(manifestAddress(r.Address), "port "+port, "as recorded")
				cells = append(cells, page.Text("%s", text).From(recorded))
			}
			t.Add(page.NoArm, cells...)
		}
	}
	return t
}

// cardFile returns the port and the file of a result that describe a model: the configuration of a model folder, or the
// endpoint.json of an artifact of type endpoint. ok is false for other results.
func cardFile(m *artifact.Manifest) (port string, file artifact.FileInfo, ok bool) {
	for _, port := range m.Ports() {
		name := map[string]string{"endpoint": endpointFile, "checkpoint": "config.json"}[m.Outputs[port].Type]
		if name != endpointFile && m.Kind != "model" {
			continue // a checkpoint that a stage trained
		}
		if file, ok = m.File(port, name); ok && file.Bytes <= maxCardBytes {
			return port, file, true
		}
	}
	return "", file, false
}

// endpointFile describes the model behind an endpoint: model, api, revision, date and context as in card.
const endpointFile = "endpoint.json"

const maxCardBytes = 64 << 10

// readCard returns the file that describes the model of a result; "" without one, or if gc removed it.
func readCard(store *artifact.Store, m *artifact.Manifest) (string, error) {
	port, file, ok := cardFile(m)
	if !ok {
		return "", nil
	}
	a, err := store.Open(m, port)
	if err != nil {
		return "", err
	}
	text, err := a.Read(file.Name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return string(text), err
}

// checkCard reports whether the text is the file that the manifest records as the description of its model.
func checkCard(m *artifact.Manifest, text string) bool {
	_, file, ok := cardFile(m)
	return ok && hexSum([]byte(text)) == file.SHA256
}

// card is the description of a model: config.json of a model folder, or endpoint.json.
type card struct {
	Path    string `json:"_name_or_path"`
	Family  string `json:"model_type"`
	Layers  int    `json:"num_hidden_layers"`
	Width   int    `json:"hidden_size"`
	Longest int    `json:"max_position_embeddings"` // tokens

	Model    string `json:"model"` // as in requests: "claude-opus-4-5-20251101"
	API      string `json:"api"`   // "anthropic"
	Revision string `json:"revision"`
	Date     string `json:"date"`
	Context  int    `json:"context"` // tokens
}

// name returns the name of the model without folders of the machine that stored it; a shape if it has no name.
func (c *card) name() string {
	switch {
	case c.API != "":
		return c.API + ": " + c.Model
	case c.Path != "" && !path.IsAbs(c.Path):
		return c.Path
	case c.Path != "":
		return path.Base(c.Path)
	}
	return fmt.Sprintf("%s, %d layers of width %d", c.Family, c.Layers, c.Width)
}

// versionsTable names the base models and the models behind APIs: the paper's tables of versions.
func (s *Study) versionsTable() *page.Table {
	t := &page.Table{ID: "versions", Title: "Versions of the models",
		Columns: page.Columns("<Stage", "<Model", "<Revision or digest", "<Date", "Context, tokens"),
		Notes: []string{"From config.json of a model folder, or from the record of an API's stage. A digest is " +
			"that of the artifact. Date: as the API reports it, else when the stage stored the model."}}
	rows := seedRows{}
	for _, r := range s.Stages {
		var c card
		if r.Card == "" || json.Unmarshal([]byte(r.Card), &c) != nil {
			continue
		}
		port, file, _ := cardFile(r.Manifest)
		from := func(rows, by string) page.Source { return page.SourceOf(manifestAddress(r.Address), rows, by) }
		revision := page.Text("%s", c.Revision).From(from(file.Name, "as recorded"))
		if c.Revision == "" {
			revision = page.Text("%s", page.Prefix(r.Manifest.Outputs[port].Digest, 16)).From(from("port "+port, "as recorded"))
		}
		date := cmp.Or(c.Date, r.Manifest.Started.UTC().Format(time.DateOnly))
		context := page.Text("–")
		if n := cmp.Or(c.Context, c.Longest); n > 0 {
			context = page.Whole(n)
		}
		name := lang.TrimStage(r.Address)
		if seed := r.Manifest.Seed; seed != nil {
			name = strings.TrimSuffix(name, fmt.Sprintf("@%d", *seed))
		}
		rows.add(t, "", r.Manifest.Seed, page.Text("%s", name),
			page.Text("%s", c.name()).From(from(file.Name, "as recorded")), revision,
			page.Text("%s", date).From(from("date", "as recorded")), context.From(from(file.Name, "as recorded")))
	}
	return t
}
