//go:build race

package index

func init() { raced = true }
