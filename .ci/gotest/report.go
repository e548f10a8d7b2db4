package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output and build-fail, instead of Package
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string  // in the fail of a package: the ImportPath that did not build
}

// subject is what lines of output belong to: a test, or with an empty test the package.
type subject struct{ pkg, test string }

type timing struct {
	subject
	took time.Duration
}

// report turns events into lines for people, as packages end.
type report struct {
	out     io.Writer
	output  map[subject][]string // of tests that have not ended
	builds  map[string][]string  // compilers' words, by import path
	timings []timing

	passed, failed, skipped int // tests, subtests among them

	// failedIn counts by package, so that one which fails without a failed test (it
	// does not build, say) is counted as well, as one.
	failedIn map[string]int
}

func newReport(out io.Writer) *report {
	return &report{
		out:      out,
		output:   map[subject][]string{},
		builds:   map[string][]string{},
		failedIn: map[string]int{},
	}
}

func (r *report) total() int { return r.passed + r.failed + r.skipped }

// ok is false if anything failed or was skipped.
func (r *report) ok() bool { return r.failed == 0 && r.skipped == 0 }

func (r *report) summary() string {
	return fmt.Sprintf("%d passed, %d failed, %d skipped", r.passed, r.failed, r.skipped)
}

// read takes the events of one run until its end.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) == nil {
				r.take(e)
			} else { // the go command's own words
				r.print(string(line))
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the events of go test: %w", err)
		}
	}
}

func (r *report) take(e event) {
	at := subject{e.Package, e.Test}
	switch {
	case e.Action == "build-output":
		r.builds[e.ImportPath] = append(r.builds[e.ImportPath], e.Output)
	case e.Action == "output":
		r.output[at] = append(r.output[at], e.Output)
	case e.Test != "":
		r.endTest(at, e)
	default:
		r.endPackage(at, e)
	}
}

func (r *report) endTest(at subject, e event) {
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.fail(at.pkg)
		r.printOutput("FAIL", at)
	case "skip":
		r.skipped++
		r.printOutput("SKIP", at)
	default: // run, pause, cont
		return
	}
	if !strings.Contains(at.test, "/") {
		r.timings = append(r.timings, timing{at, seconds(e.Elapsed)})
	}
	delete(r.output, at)
}

func (r *report) endPackage(at subject, e event) {
	switch e.Action {
	case "pass":
		cached := ""
		if strings.Contains(strings.Join(r.output[at], ""), "\t(cached)") {
			cached = " (cached)"
		}
		r.print(fmt.Sprintf("ok    %s %.1fs%s\n", at.pkg, e.Elapsed, cached))
	case "fail":
		for _, line := range r.builds[e.FailedBuild] {
			r.print(line)
		}
		r.endUnfinished(at.pkg)
		if r.failedIn[at.pkg] == 0 {
			r.fail(at.pkg)
		}
		r.printOutput("FAIL", at)
	case "start":
		delete(r.failedIn, at.pkg) // of an earlier run
		return
	case "skip": // the package has no tests
	default:
		return
	}
	delete(r.output, at)
}

// endUnfinished fails the tests that a panic, a timeout or an os.Exit cut short: for
// them no event arrives.
func (r *report) endUnfinished(pkg string) {
	var left []subject
	for at := range r.output {
		if at.pkg == pkg && at.test != "" {
			left = append(left, at)
		}
	}
	slices.SortFunc(left, func(a, b subject) int { return strings.Compare(a.test, b.test) })
	for _, at := range left {
		r.fail(at.pkg)
		r.printOutput("FAIL", at)
		delete(r.output, at)
	}
}

func (r *report) fail(pkg string) {
	r.failed++
	r.failedIn[pkg]++
}

func (r *report) printOutput(verdict string, at subject) {
	name := at.pkg
	if at.test != "" {
		name += "." + at.test
	}
	r.print(verdict + "  " + name + "\n")
	for _, line := range r.output[at] {
		if !strings.HasPrefix(line, "=== ") {
			r.print("      " + line)
		}
	}
}

// printSlowest names the tests that took longest, at most so many and none that was
// quicker than the bound: where to look when the whole takes too long.
func (r *report) printSlowest(most int, bound time.Duration) {
	slices.SortFunc(r.timings, func(a, b timing) int { return int(b.took - a.took) })
	for i, t := range r.timings {
		if i == most || t.took < bound {
			return
		}
		r.print(fmt.Sprintf("slow  %6.1fs %s.%s\n", t.took.Seconds(), t.pkg, t.test))
	}
}

// print writes to a terminal or a log: there is nothing to do about an error.
func (r *report) print(s string) { _, _ = io.WriteString(r.out, s) }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
