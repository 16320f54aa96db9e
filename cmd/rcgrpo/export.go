package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"rcgrpo/bfcl"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/stages/rl"
)

// rowFiles maps artifact types to their file of rows.
var rowFiles = map[string]string{
	"metrics":      rl.MetricsFile,
	"scores":       rl.ScoresFile,
	"tasks":        bfcl.TasksFile,
	"trajectories": rl.TrajectoriesFile,
	"dataset":      rl.DatasetFile,
}

// exported is an artifact with its rows, as `show --json` prints it.
type exported struct {
	Address string            `json:"address"`
	Seed    *int64            `json:"seed,omitempty"`
	Port    string            `json:"port"`
	Type    string            `json:"type"`
	Digest  string            `json:"digest"`
	Folder  string            `json:"folder"`
	Made    string            `json:"made"`
	Seconds float64           `json:"seconds"`
	Rows    []json.RawMessage `json:"rows"`            // null if the type has none
	Times   []json.RawMessage `json:"times,omitempty"` // of metrics: the duration of each update
}

// export prints the rows of every artifact that an address matches.
//
// CSV is one wide table for data frames: a row per update (metrics), episode (scores, trajectories), task or example.
// The columns address and seed identify the artifact. A missing value is an empty cell. Lists, such as tokens and
// messages, are only in JSON. Numbers are printed as recorded.
func export(w, notes io.Writer, x *lang.Experiment, store *artifact.Store, address, task string, asJSON bool) error {
	nodes, port, err := portNodes(x, address)
	if err != nil {
		return err
	}
	results, err := current(x, store, nodes)
	if err != nil {
		return err
	}
	all := []exported{}
	for i, m := range results {
		if m == nil {
			fmt.Fprintf(notes, "%s has no result yet\n", nodes[i].Address)
			continue
		}
		a, err := store.Open(m, port)
		if err != nil {
			return err
		}
		e := exported{Address: nodes[i].Address, Seed: nodes[i].Seed, Port: port, Type: a.Type, Digest: a.Digest,
			Folder: a.Dir, Made: m.Started.Format(time.RFC3339), Seconds: m.Seconds}
		if file := rowFiles[a.Type]; file != "" {
			if e.Rows, err = rawRows(a, file, task); err != nil {
				return err
			}
		} else if !asJSON {
			return fmt.Errorf("%s is of type %s, which has no rows; --json prints its folder", address, a.Type)
		}
		if a.Type == "metrics" {
			if e.Times, err = rawRows(a, rl.TimesFile, ""); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return fmt.Errorf("there is no result yet; `rcgrpo run` computes it")
	}
	if asJSON {
		return printJSON(w, all)
	}
	return writeCSV(w, all)
}

// rawRows reads rows without decoding them, only those of the task unless task is "".
func rawRows(a *artifact.Artifact, file, task string) ([]json.RawMessage, error) {
	rows := []json.RawMessage{}
	for row, err := range artifact.Rows[json.RawMessage](a, file) {
		if err != nil {
			return nil, err
		}
		if task != "" {
			var of struct{ Task, ID string }
			if err := json.Unmarshal(row, &of); err != nil {
				return nil, err
			}
			if of.Task != task && of.ID != task {
				continue
			}
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// writeCSV prints all rows as one table. Columns are in the order of their first appearance.
func writeCSV(w io.Writer, all []exported) error {
	t := csvTable{column: map[string]int{}}
	for _, e := range all {
		seed := ""
		if e.Seed != nil {
			seed = strconv.FormatInt(*e.Seed, 10)
		}
		for i, row := range e.Rows {
			t.begin()
			t.put("address", e.Address)
			t.put("seed", seed)
			if err := t.flatten(row, ""); err != nil {
				return fmt.Errorf("%s, row %d: %w", e.Address, i+1, err)
			}
			if i < len(e.Times) {
				if err := t.flatten(e.Times[i], ""); err != nil {
					return fmt.Errorf("%s, times of row %d: %w", e.Address, i+1, err)
				}
			}
		}
	}
	out := bufio.NewWriter(w)
	c := csv.NewWriter(out)
	if err := c.Write(t.head); err != nil {
		return err
	}
	for _, row := range t.rows {
		if err := c.Write(append(row, make([]string, len(t.head)-len(row))...)); err != nil {
			return err
		}
	}
	c.Flush()
	return errors.Join(c.Error(), out.Flush())
}

// csvTable is a table that adds columns when a row needs them.
type csvTable struct {
	head   []string
	column map[string]int
	rows   [][]string
}

func (t *csvTable) begin() { t.rows = append(t.rows, make([]string, 0, len(t.head))) }

// put sets a cell of the last row.
func (t *csvTable) put(name, value string) {
	i, ok := t.column[name]
	if !ok {
		i = len(t.head)
		t.column[name], t.head = i, append(t.head, name)
	}
	row := &t.rows[len(t.rows)-1]
	for len(*row) <= i {
		*row = append(*row, "")
	}
	(*row)[i] = value
}

// flatten puts the scalar values of an object in their order. A nested field is named NAME.FIELD, except those of
// "values", the metrics of a row.
func (t *csvTable) flatten(object json.RawMessage, prefix string) error {
	d := json.NewDecoder(bytes.NewReader(object))
	if brace, err := d.Token(); err != nil || brace != json.Delim('{') {
		return errors.Join(err, fmt.Errorf("want an object, got %.40s", object))
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return err
		}
		key := prefix + name.(string)
		switch value[0] {
		case '[', 'n': // a list, null
		case '{':
			inner := key + "."
			if key == "values" {
				inner = ""
			}
			err = t.flatten(value, inner)
		case '"':
			var text string
			err = json.Unmarshal(value, &text)
			t.put(key, text)
		default:
			t.put(key, string(value))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
