// Package must ends a test whose preparation fails, in one line. Only tests import it.
package must

import "testing"

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
