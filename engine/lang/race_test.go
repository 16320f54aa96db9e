//go:build race

package lang_test

func init() { raced = true }
