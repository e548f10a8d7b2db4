// Package bubble runs functions in testing/synctest bubbles, in programs as well as in tests.
package bubble

import (
	"errors"
	"flag"
	"io"
	"os"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// ErrNone means that the standard library's test runner did not run f. Another flag of `go test` than the flags that
// this file handles has deselected it.
var ErrNone = errors.New("sim: the simulation was not run")

var bubbles sync.Mutex // package testing has a single runner in a process

// Run runs f in a testing/synctest bubble, and returns its result. Time in the bubble is virtual, and passes when every
// goroutine that f started waits. Run returns when all of them have ended.
//
// A bubble belongs to a *testing.T, and the only public way to get one is the runner of package testing. Outside of `go
// test` the runner must be primed first. f must not fail through t, because no test reads it.
func Run[R any](f func() (R, error)) (result R, err error) {
	bubbles.Lock()
	defer bubbles.Unlock()
	if !testing.Testing() {
		primeOnce.Do(prime)
		if !flag.Parsed() { // the runner requires parsed flags; a program can still parse later
			_ = flag.CommandLine.Parse(nil)
		}
	}
	if skip := flag.Lookup("test.skip"); skip != nil { // the flag is for tests, and f is not a test
		defer func(was string) { _ = skip.Value.Set(was) }(skip.Value.String())
		_ = skip.Value.Set("")
	}
	ran := false
	all := func(string, string) (bool, error) { return true, nil }
	testing.RunTests(all, []testing.InternalTest{{Name: "sim", F: func(t *testing.T) {
		synctest.Test(t, func(*testing.T) { result, err = f() })
		ran = true
	}}})
	if !ran {
		return result, ErrNone
	}
	return result, err
}

var primeOnce sync.Once

// prime makes the runner read its flags, with their defaults, by running no test. The flags go into a separate flag
// set, so that the program's command line does not grow. The runner's output ("no tests to run", "PASS") is discarded.
func prime() {
	nowhere, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return // then the output is printed
	}
	defer func() { _ = nowhere.Close() }()
	flags, stdout, stderr := flag.CommandLine, os.Stdout, os.Stderr
	defer func() { flag.CommandLine, os.Stdout, os.Stderr = flags, stdout, stderr }()
	flag.CommandLine, os.Stdout, os.Stderr = flag.NewFlagSet("", flag.ContinueOnError), nowhere, nowhere
	testing.Init()
	_ = flag.CommandLine.Parse(nil) // there are no arguments, so it cannot fail
	testing.MainStart(noDeps{}, nil, nil, nil, nil).Run()
}

// noDeps is the runner's dependencies for profiles, coverage and fuzzing. None of them is used.
type noDeps struct{}

// corpusEntry is the type that package testing has under this name, but does not export.
type corpusEntry = struct {
	Parent     string
	Path       string
	Data       []byte
	Values     []any
	Generation int
	IsSeed     bool
}

func (noDeps) ImportPath() string                                       { return "" }
func (noDeps) ModulePath() string                                       { return "" }
func (noDeps) MatchString(string, string) (bool, error)                 { return true, nil }
func (noDeps) SetPanicOnExit0(bool)                                     {}
func (noDeps) StartCPUProfile(io.Writer) error                          { return nil }
func (noDeps) StopCPUProfile()                                          {}
func (noDeps) StartTestLog(io.Writer)                                   {}
func (noDeps) StopTestLog() error                                       { return nil }
func (noDeps) WriteProfileTo(string, io.Writer, int) error              { return nil }
func (noDeps) RunFuzzWorker(func(corpusEntry) error) error              { return nil }
func (noDeps) ReadCorpus(string, []reflect.Type) ([]corpusEntry, error) { return nil, nil }
func (noDeps) CheckCorpus([]any, []reflect.Type) error                  { return nil }
func (noDeps) ResetCoverage()                                           {}
func (noDeps) SnapshotCoverage()                                        {}
func (noDeps) CoordinateFuzzing(time.Duration, int64, time.Duration, int64, int, []corpusEntry, []reflect.Type, string,
	string) error {
	return nil
}
func (noDeps) InitRuntimeCoverage() (mode string,
	tearDown func(string, string) (string, error), snapcov func() float64) {
	return "", nil, nil
}
