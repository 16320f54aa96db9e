//go:build race

package docs_test

func init() { raced = true }
