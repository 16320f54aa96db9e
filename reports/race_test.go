//go:build race

package reports

func init() { raced = true }
