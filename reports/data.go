package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rcgrpo/bfcl"
	"rcgrpo/reports/page"
	"rcgrpo/reports/stats"
)

// seedRows merges the rows of seeds with equal values.
type seedRows map[string]int // index of the row by its texts

// add adds a row; a row with the same texts and identity gets the seed and the sources instead.
func (rows seedRows) add(t *page.Table, identity string, seed *int64, cells ...page.Cell) {
	for _, c := range cells {
		identity += "\x00" + c.Text
	}
	at, known := rows[identity]
	if !known {
		at = len(t.Rows)
		rows[identity] = at
		t.Add(page.NoArm, cells...)
	}
	first := &t.Rows[at].Cells[0]
	switch {
	case seed == nil:
	case first.Detail == "":
		*first = first.With("seed %d", *seed)
	default:
		*first = first.With("%s, %d", first.Detail, *seed)
	}
	for i := range cells {
		cell := &t.Rows[at].Cells[i]
		if cell.Source.By != "" {
			cell.Source = page.Together(cell.Source.By, cell.Source.Rows, cell.Source, cells[i].Source)
		}
	}
}

// taskSplit holds the task sets of one stage and seed, one for each port.
type taskSplit struct {
	stage string
	seed  *int64
	sets  map[string]*TaskSet // by port
}

// splits returns the splits of the study and all their ports, in order of appearance.
func (s *Study) splits() (all []taskSplit, ports []string) {
	for _, d := range s.TaskSets {
		stage, port, _ := page.CutLast(d.Label, " ")
		page.IndexOrAppend(&ports, port)
		split := findOrAdd(&all, taskSplit{stage, d.Seed, map[string]*TaskSet{}},
			func(x taskSplit) bool { return x.stage == stage && compareSeeds(x.seed, d.Seed) == 0 })
		split.sets[port] = &d
	}
	return all, ports
}

// selectedRows is rows of some task sets, or of a data set, with the ports that have them.
type selectedRows[T any] struct {
	rows []T
	from []string
	what string // name of the rows; "" for all
}

// where selects rows.
func (t selectedRows[T]) where(what string, is func(T) bool) selectedRows[T] {
	return t.those(what, slices.DeleteFunc(slices.Clone(t.rows), func(row T) bool { return !is(row) }))
}

// those has rows that the caller selected.
func (t selectedRows[T]) those(what string, rows []T) selectedRows[T] {
	t.what, t.rows = strings.Trim(t.what+", "+what, ", "), rows
	return t
}

// cell shows a number of the rows, with its source.
func (t selectedRows[T]) cell(by string, number func([]T) int) page.Cell {
	return page.Whole(number(t.rows)).From(page.Source{From: t.from, Rows: t.what, By: by})
}

func length[T any](rows []T) int { return len(rows) }

func families(tasks []*bfcl.Task) int {
	names := map[string]bool{}
	for _, task := range tasks {
		names[task.Family] = true
	}
	return len(names)
}

// dataTable lists the tasks of each split by category and set, with totals: the paper's table of the split.
func (s *Study) dataTable() *page.Table {
	splits, ports := s.splits()
	t := &page.Table{ID: "data", Title: "Tasks by category and set",
		Columns: append(append(page.Columns("<Tasks of", "<Category"),
			page.Columns(ports...)...), page.Column{Name: "Total"})}
	rows := seedRows{}
	for _, split := range splits {
		categories, of := map[string]bool{}, map[string]map[string][]*bfcl.Task{} // by port and category
		count := map[string]int{}
		for port, d := range split.sets {
			of[port] = map[string][]*bfcl.Task{}
			for _, task := range d.Tasks {
				categories[task.Category] = true
				of[port][task.Category] = append(of[port][task.Category], task)
				count[port+" "+task.Category]++
			}
		}
		counts := hexSum(fmt.Append(nil, count))
		row := func(name, what, by string, tasks func(port string) []*bfcl.Task, number func([]*bfcl.Task) int) {
			cells, all := []page.Cell{page.Text("%s", split.stage), page.Text("%s", name)}, selectedRows[*bfcl.Task]{what: what}
			for _, port := range ports {
				d := split.sets[port]
				if d == nil {
					cells = append(cells, page.Text(""))
					continue
				}
				one := selectedRows[*bfcl.Task]{from: []string{d.Source}}.those(what, tasks(port))
				all.rows, all.from = append(all.rows, one.rows...), append(all.from, d.Source)
				cells = append(cells, one.cell(by, number))
			}
			// seeds share rows only if all counts are equal
			rows.add(t, counts, split.seed, append(cells, all.cell(by, number))...)
		}
		for _, category := range sortedKeys(categories) {
			row(categoryName(category), "category "+category, "number of tasks",
				func(port string) []*bfcl.Task { return of[port][category] }, length)
		}
		every := func(port string) []*bfcl.Task { return split.sets[port].Tasks }
		row("total", "", "number of tasks", every, length)
		row("families", "", "number of families", every, families)
	}
	return t
}

// certificateTable counts the overlap of test sets with the training set of their stage and seed. A sound split shares
// no family.
func (s *Study) certificateTable() *page.Table {
	t := &page.Table{
		ID: "certificate", Title: "Certificate of the split: overlap of test sets with training",
		Columns: page.Columns("<Sets", "Families", "Initial states", "Ground truths", "Test tasks touched"),
		Notes: []string{"Different values that occur on both sides, out of those in the test set. Touched: test tasks " +
			"whose ground truth or family occurs in training."},
	}
	for _, test := range s.TaskSets {
		for _, train := range s.TaskSets {
			if !strings.HasSuffix(train.Label, " train") || strings.HasSuffix(test.Label, " train") ||
				train.Stage != test.Stage || compareSeeds(train.Seed, test.Seed) != 0 {
				continue
			}
			c := bfcl.Certify(train.Tasks, test.Tasks)
			source := page.Source{From: []string{test.Source, train.Source}, By: "certificate of the split, from the tasks"}
			shared := func(o bfcl.Overlap) page.Cell {
				v := float64(o.Shared)
				return page.Cell{Text: fmt.Sprintf("%d of %d", o.Shared, o.InTest), Value: &v, Source: source}
			}
			name := page.Text("%s against %s", test.Label, train.Label)
			if test.Seed != nil {
				name = name.With("seed %d", *test.Seed)
			}
			t.Add(page.NoArm, name, shared(c.Families), shared(c.InitialStates), shared(c.GroundTruths),
				page.Whole(max(c.Families.TestTasks, c.GroundTruths.TestTasks)).From(source))
		}
	}
	return t
}

// summaryNames explain the counts in summary.json of a curate stage.
var summaryNames = map[string]string{
	"experts": "expert episodes", "real": "failures from rollouts", "spoilt": "failures made from experts",
	"rollouts": "rollouts", "missing": "rollouts without a reward, whose environment failed",
	"failed": "rollouts with reward 0", "duplicates": "repeated failures, omitted",
	"no_failure":  "tasks without a failure, whose quota went to other tasks",
	"short_real":  "missing real failures, replaced by failures made from experts",
	"unspoilable": "tasks without a failure made from experts, whose quota went to other tasks",
}

// statisticsTable counts the trajectories of the fine-tuning data by success, by category, and by the set of their
// task: the paper's statistics of the data.
func (s *Study) statisticsTable() *page.Table {
	found := map[string]bool{}
	for _, d := range s.DataSets {
		for _, one := range d.Members {
			found[one.Category] = true
		}
	}
	categories := sortedKeys(found)
	t := &page.Table{ID: "statistics", Title: "Fine-tuning data by success", Columns: append(page.Columns("<Data set",
		"<Trajectories", "Of train tasks", "Of test tasks", "Total", "Success rate"), categoryColumns(categories)...),
		Notes: []string{"Success is the paper's reward of the trajectory. Train and test: by the task sets of this page " +
			"that contain its task; test are all sets but train."}}
	rows := seedRows{}
	for _, d := range s.DataSets {
		portOf, sources := s.portsOfTasks(d.Seed)
		all := selectedRows[Member]{rows: d.Members, from: []string{d.Source}}
		succeeds := func(x Member) bool { return x.Passed }
		classes := []selectedRows[Member]{all.where("success", succeeds),
			all.where("failure", func(x Member) bool { return !x.Passed }), all}
		for i, class := range classes {
			total := i == 2
			if len(class.rows) == 0 || total && (len(classes[0].rows) == 0 || len(classes[1].rows) == 0) {
				continue
			}
			const by = "number of trajectories"
			withSets := class
			withSets.from = append(slices.Clip(class.from), sources...)
			rate := page.ShareCell(len(class.where("", succeeds).rows), len(class.rows), stats.Unknown)
			cells := []page.Cell{page.Text("%s", d.Label), page.Text("%s", cmp.Or(class.what, "total")),
				withSets.where("tasks of train", func(x Member) bool { return portOf[x.Task] == "train" }).cell(by, length),
				withSets.where("tasks of test sets", func(x Member) bool {
					return portOf[x.Task] != "" && portOf[x.Task] != "train"
				}).cell(by, length), class.cell(by, length),
				rate.From(page.SourceOf(d.Source, class.what, "share of reward 1"))}
			of := map[string][]Member{}
			for _, one := range class.rows {
				of[one.Category] = append(of[one.Category], one)
			}
			for _, c := range categories {
				cells = append(cells, class.those("category "+c, of[c]).cell(by, length))
			}
			rows.add(t, "", d.Seed, cells...)
		}
	}
	return t
}

// portsOfTasks returns the port of the task set that contains each task, among the sets of that seed and of none, or
// without a seed among all, and the sources of these sets. A task of train and of another set counts as train's.
func (s *Study) portsOfTasks(seed *int64) (portOf map[string]string, sources []string) {
	portOf = map[string]string{}
	for _, d := range s.TaskSets {
		if d.Seed != nil && seed != nil && *d.Seed != *seed {
			continue
		}
		sources = append(sources, d.Source)
		_, port, _ := page.CutLast(d.Label, " ")
		for _, task := range d.Tasks {
			if portOf[task.ID] != "train" {
				portOf[task.ID] = port
			}
		}
	}
	return portOf, sources
}

// originTable shows the composition of the fine-tuning data sets.
func (s *Study) originTable() *page.Table {
	t := &page.Table{ID: "mixtures", Title: "Origins of the fine-tuning data", Folded: true,
		Columns: page.Columns("<Set", "<Content", "Trajectories")}
	for _, d := range s.DataSets {
		name := page.Text("%s", d.Label)
		if d.Seed != nil {
			name = name.With("seed %d", *d.Seed)
		}
		row := func(n int, text, rows, by string) {
			t.Add(page.NoArm, name, page.Text("%s", text), page.Whole(n).From(page.SourceOf(d.Source, rows, by)))
		}
		kinds := map[string]int{}
		for _, one := range d.Members {
			text := "origin " + one.Origin
			if one.Token != "" {
				text += ", token " + one.Token
			}
			kinds[text]++
		}
		for _, text := range sortedKeys(kinds) {
			row(kinds[text], text, text, "number of trajectories")
		}
		for _, count := range sortedKeys(d.Summary) {
			row(d.Summary[count], cmp.Or(summaryNames[count], count), count, "summary.json")
		}
	}
	return t
}
