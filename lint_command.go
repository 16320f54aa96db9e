package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"rcgrpo/reports/lint"
)

// lintCommand runs `rcgrpo lint TABLE.csv -n N,N,...`: it prints what cannot be right in a table of percentages with
// known denominators, and exits with 1 when there is anything.
func lintCommand(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	c := newCall("lint", "TABLE.csv -n N,N,...", stdout, stderr)
	var denominators []int
	c.Func("n", "`N,N,...`: the number of tasks behind each column of percentages", func(s string) error {
		denominators = nil
		for field := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(field))
			if err != nil {
				return fmt.Errorf("want whole numbers with commas between them")
			}
			denominators = append(denominators, n)
		}
		return nil
	})
	overall := c.String("overall", "", "the `COLUMN` over all tasks (default the first whose N is the sum of the others')")
	asJSON := c.Bool("json", false, "print the findings as JSON")
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) != 1 {
		return c.misuse("want one table as CSV (- is standard input), got %d", len(c.args))
	}
	if denominators == nil {
		return c.misuse("want the number of tasks behind each column of percentages, such as -n 80,18,17,22,23")
	}
	in, name := stdin, "standard input"
	if c.args[0] != "-" {
		f, err := os.Open(c.args[0])
		if err != nil {
			return c.fail(err)
		}
		defer f.Close()
		in, name = f, c.args[0]
	}
	table, err := lint.ReadTable(in, denominators, *overall)
	if err != nil {
		return c.fail(fmt.Errorf("%s: %w", name, err))
	}
	findings, err := lint.Check(table)
	if err != nil {
		return c.fail(fmt.Errorf("%s: %w", name, err))
	}
	if *asJSON {
		err = printJSON(stdout, append([]lint.Finding{}, findings...)) // [] where there are none
	} else {
		err = printFindings(stdout, findings, len(table.Rows))
	}
	if err != nil {
		return c.fail(err)
	}
	if len(findings) > 0 {
		return exitFailed
	}
	return exitDone
}

func printFindings(w io.Writer, findings []lint.Finding, rows int) error {
	for _, f := range findings {
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
	}
	if len(findings) > 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "nothing impossible in %d rows\n", rows)
	return err
}
