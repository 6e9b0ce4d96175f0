// Package must ends a test on an error.
package must

import "testing"

// Do ends the test on an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns a result, and ends the test on an error, as in must.Get[int](t)(f()).
func Get[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		Do(t, err)
		return v
	}
}
