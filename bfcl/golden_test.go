package bfcl

import (
	"sync"
	"testing"

	"rcgrpo/bench/fixtures"
)

var loaded struct {
	sync.Once
	data *Data
	err  error
}

// official loads the benchmark once for all tests.
func official(t testing.TB) *Data {
	t.Helper()
	dir := fixtures.Benchmark(t)
	loaded.Do(func() { loaded.data, loaded.err = LoadData(dir) })
	if loaded.err != nil {
		t.Fatalf("the official data has faults: %v", loaded.err)
	}
	return loaded.data
}
