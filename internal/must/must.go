// Package must checks errors in tests, in one line, and makes what several tests need. Only tests and build/gotest
// import it.
package must

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// IsLong is the message of a test that make test shortens or skips. It makes build/gotest -check run the whole test.
const IsLong = "long: make check runs it"

// Long skips the test under -short, as in make test. A test is long if it takes more than about ten
// seconds of a processor, and a shorter test represents its guarantee in make test.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip(IsLong)
	}
}

// Short returns a size of the test: short under -short, else whole.
func Short(t testing.TB, short, whole int) int {
	t.Helper()
	if testing.Short() {
		t.Log(IsLong)
		return short
	}
	return whole
}

// OK ends the test if err is not nil.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get ends the test if err is not nil, and returns v otherwise: must.Get(os.ReadFile(path))(t).
func Get[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return v
	}
}

// Match reports an error that does not contain want; want "" means no error. of names the case.
func Match(t testing.TB, err error, want string, of ...string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s got the error %v, want %q", of, err, want)
	}
}

// Contain reports every text that got does not contain.
func Contain(t testing.TB, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("got:\n%s\nwant %q in it", got, w)
		}
	}
}

// NoPlainFiles make what a stranger may have put in the place of a file: reading it would never end, or take gigabytes.
var NoPlainFiles = map[string]func(path string) error{
	"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
	"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
	"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
	"a large file": func(path string) error {
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, 1<<41))
	},
}
