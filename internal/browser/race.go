//go:build race

package browser

func init() { raced = true }
