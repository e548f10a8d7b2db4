package counttest

import "testing"

// subtest is a sentence of a contract, and the test that holds a subject to it.
type subtest[S any] struct {
	name string
	run  func(t *testing.T, s S)
}

// run runs subtests, each against a new result of open.
func run[S any](t *testing.T, open func(testing.TB) S, subtests []subtest[S]) {
	for _, s := range subtests {
		t.Run(s.name, func(t *testing.T) { s.run(t, open(t)) })
	}
}

// group runs subtests under a name.
func group[S any](t *testing.T, name string, open func(testing.TB) S, subtests []subtest[S]) {
	t.Run(name, func(t *testing.T) { run(t, open, subtests) })
}

// errOf returns the error of a call whose answer does not matter.
func errOf[T any](_ T, err error) error { return err }
