package views

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"rcgrpo/engine/artifact"
	"rcgrpo/reports/page"
)

// Exported is an artifact with its rows, as `show --json` prints it.
type Exported struct {
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

// RawRows reads rows without decoding them, only those of the task unless task is "".
func RawRows(a *artifact.Artifact, file, task string) ([]json.RawMessage, error) {
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

// WriteCSV prints all rows as one table. Columns are in the order of their first appearance.
func WriteCSV(w io.Writer, all []Exported) error {
	var t csvTable
	for _, e := range all {
		seed := ""
		if e.Seed != nil {
			seed = strconv.FormatInt(*e.Seed, 10)
		}
		for i, row := range e.Rows {
			t.rows = append(t.rows, map[string]string{})
			t.put("address", e.Address)
			t.put("seed", seed)
			err := t.flatten(row, "")
			if err == nil && i < len(e.Times) {
				err = t.flatten(e.Times[i], "")
			}
			if err != nil {
				return fmt.Errorf("%s, row %d: %w", e.Address, i+1, err)
			}
		}
	}
	records := [][]string{t.head}
	for _, row := range t.rows {
		record := make([]string, len(t.head))
		for i, name := range t.head {
			record[i] = row[name]
		}
		records = append(records, record)
	}
	return csv.NewWriter(w).WriteAll(page.Inert(records))
}

// csvTable is a table that adds columns when a row needs them.
type csvTable struct {
	head []string
	rows []map[string]string // by column
}

func (t *csvTable) put(name, value string) {
	if !slices.Contains(t.head, name) {
		t.head = append(t.head, name)
	}
	t.rows[len(t.rows)-1][name] = value
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
			err = t.flatten(value, strings.TrimPrefix(key+".", "values."))
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
