package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"rcgrpo/bfcl"
)

// dataTable lists the task sets by category. Sets of several seeds with equal sizes share a row.
func (s *Study) dataTable() *Table {
	found := map[string]bool{}
	for _, d := range s.Data {
		for _, task := range d.Tasks {
			found[task.Category] = true
		}
	}
	categories := sortedKeys(found)
	t := &Table{ID: "data", Title: "Tasks", Columns: append(columns("<Set", "Tasks", "Families"),
		columns(categories...)...)}
	rowOf := map[string]int{} // by label and sizes
	for _, d := range s.Data {
		families, per := map[string]bool{}, map[string]int{}
		for _, task := range d.Tasks {
			families[task.Family] = true
			per[task.Category]++
		}
		cells := []Cell{Text("%s", d.Label).From(sourceOf(d.Source, "", "task sets of these sizes")),
			whole(len(d.Tasks)).From(sourceOf(d.Source, "", "number of tasks")),
			whole(len(families)).From(sourceOf(d.Source, "", "number of families"))}
		for _, c := range categories {
			cells = append(cells, whole(per[c]).From(sourceOf(d.Source, "category "+c, "number of tasks")))
		}
		sizes := fmt.Sprint(d.Label, len(d.Tasks), len(families), per) // fmt prints maps in the order of their keys
		at, known := rowOf[sizes]
		if !known {
			at = len(t.Rows)
			rowOf[sizes] = at
			t.add(NoArm, cells...)
		}
		for i := range cells {
			cell := &t.Rows[at].Cells[i]
			cell.Source = together(cell.Source.By, cell.Source.Rows, cell.Source, cells[i].Source)
		}
		if first := &t.Rows[at].Cells[0]; d.Seed != nil && first.Detail == "" {
			first.Detail = fmt.Sprintf("seed %d", *d.Seed)
		} else if d.Seed != nil {
			first.Detail += fmt.Sprintf(", %d", *d.Seed)
		}
	}
	return t.orNil()
}

// certificateTable counts the overlap of test sets with the training set of their stage and seed. A sound split shares
// no family.
func (s *Study) certificateTable() *Table {
	t := &Table{
		ID: "certificate", Title: "Certificate of the split: overlap of test sets with training",
		Columns: columns("<Sets", "Families", "Initial states", "Ground truths", "Test tasks touched"),
		Notes: []string{"Different values that occur on both sides, out of those in the test set. Touched: test tasks " +
			"whose ground truth or family occurs in training."},
	}
	for _, test := range s.Data {
		for _, train := range s.Data {
			if !strings.HasSuffix(train.Label, " train") || strings.HasSuffix(test.Label, " train") ||
				train.Stage != test.Stage || compareSeeds(train.Seed, test.Seed) != 0 {
				continue
			}
			c := bfcl.Certify(train.Tasks, test.Tasks)
			source := Source{From: []string{test.Source, train.Source}, By: "certificate of the split, from the tasks"}
			shared := func(o bfcl.Overlap) Cell {
				v := float64(o.Shared)
				return Cell{Text: fmt.Sprintf("%d of %d", o.Shared, o.InTest), Value: &v, Source: source}
			}
			name := Text("%s against %s", test.Label, train.Label)
			if test.Seed != nil {
				name = name.With("seed %d", *test.Seed)
			}
			t.add(NoArm, name, shared(c.Families), shared(c.InitialStates), shared(c.GroundTruths),
				whole(max(c.Families.TestTasks, c.GroundTruths.TestTasks)).From(source))
		}
	}
	return t.orNil()
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

// mixtureTable shows the composition of the fine-tuning data sets.
func (s *Study) mixtureTable() *Table {
	t := &Table{ID: "mixtures", Title: "Fine-tuning data", Columns: columns("<Set", "<Content", "Trajectories")}
	for _, m := range s.Mixtures {
		name := Text("%s", m.Label)
		if m.Seed != nil {
			name = name.With("seed %d", *m.Seed)
		}
		row := func(n int, text, rows, by string) {
			t.add(NoArm, name, Text("%s", text), whole(n).From(sourceOf(m.Source, rows, by)))
		}
		var kinds [][2]string
		for kind := range m.Counts {
			kinds = append(kinds, kind)
		}
		slices.SortFunc(kinds, func(a, b [2]string) int { return strings.Compare(a[0]+a[1], b[0]+b[1]) })
		for _, kind := range kinds {
			text := "origin " + kind[0]
			if kind[1] != "" {
				text += ", token " + kind[1]
			}
			row(m.Counts[kind], text, text, "number of trajectories")
		}
		for _, count := range sortedKeys(m.Summary) {
			row(m.Summary[count], cmp.Or(summaryNames[count], count), count, "summary.json")
		}
	}
	return t.orNil()
}
