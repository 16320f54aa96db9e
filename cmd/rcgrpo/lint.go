package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/reports/lint"
)

func lintCommand() *cobra.Command {
	c := newCommand("lint TABLE.csv", "Find impossible values in a table of percentages (- is standard input)",
		wantArgs(1, 1, "want one table as CSV (- is standard input)"))
	denominators := c.Flags().IntSliceP("tasks", "n", nil, "number of tasks of each column of percentages: `N,N,...`")
	overall := c.Flags().String("overall", "", "`COLUMN` of all tasks (default: the first whose N is the sum of others)")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return c.runs(func(args []string) error {
		if len(*denominators) == 0 {
			return misuse("want the number of tasks of each column of percentages, such as -n 80,18,17,22,23")
		}
		in, name := c.InOrStdin(), "standard input"
		if args[0] != "-" {
			f, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer f.Close()
			in, name = f, args[0]
		}
		table, err := lint.ReadTable(in, *denominators, *overall)
		var findings []lint.Finding
		if err == nil {
			findings, err = lint.Check(table)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		switch {
		case *asJSON:
			err = output.JSON(c.stdout(), append([]lint.Finding{}, findings...)) // [] instead of null
		case len(findings) == 0:
			fmt.Fprintf(c.stdout(), "nothing impossible in %d rows\n", len(table.Rows))
		default:
			for _, f := range findings {
				fmt.Fprintln(c.stdout(), f)
			}
		}
		if err == nil && len(findings) > 0 {
			err = exitCode(exitFailed)
		}
		return err
	})
}
