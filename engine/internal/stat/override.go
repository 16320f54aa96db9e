package stat

import (
	"sync"
	"sync/atomic"
)

var (
	overriding sync.Mutex
	overrides  atomic.Pointer[map[string][]byte]
)

// Override makes ReadSource return the given texts, by absolute path, until the caller calls end.
// A second caller waits. The files must exist.
func Override(texts map[string][]byte) (end func()) {
	overriding.Lock()
	overrides.Store(&texts)
	return func() {
		overrides.Store(nil)
		overriding.Unlock()
	}
}

// overridden returns text, or the text that overrides the file.
func overridden(path string, text []byte) []byte {
	if texts := overrides.Load(); texts != nil {
		if other, ok := (*texts)[Absolute(path)]; ok {
			return other
		}
	}
	return text
}
