package bubble

import (
	"flag"
	"testing"
)

// A simulation runs even if `go test -skip` leaves tests out, and the flag keeps its value.
func TestSkippedTestsDoNotSkipSimulations(t *testing.T) {
	skip := flag.Lookup("test.skip").Value
	was := skip.String()
	defer func() { _ = skip.Set(was) }()
	if err := skip.Set("."); err != nil {
		t.Fatal(err)
	}
	if ran, err := Run(func() (bool, error) { return true, nil }); err != nil || !ran {
		t.Errorf("ran: %v, error: %v", ran, err)
	}
	if got := skip.String(); got != "." {
		t.Errorf("-skip is %q afterwards", got)
	}
}
