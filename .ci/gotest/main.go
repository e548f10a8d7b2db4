// Gotest runs `go test` several times and reports the runs as one.
//
//	gotest -- ARGS [-- ARGS]...
//
// Each group of ARGS is one run. All of them take place even if an earlier one
// fails, so that one look at the log shows everything that is wrong. Of a test that
// passes nothing is printed, of one that fails its own output.
//
// It is stricter than `go test` in two ways. A skipped test is a failure: a check
// that silently did not take place is worth less than none. So is a run in which no
// test was found.
//
// The last line is always "N passed, N failed, N skipped in T".
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

func main() {
	groups := split(os.Args[1:])
	if len(groups) == 0 {
		fmt.Fprintln(os.Stderr, "usage: gotest -- GO-TEST-ARGS [-- GO-TEST-ARGS]...")
		os.Exit(2)
	}
	started := time.Now()
	report := newReport(os.Stdout)
	ok := true
	for _, args := range groups {
		fmt.Printf("== go test %s\n", abbreviate(args))
		found := report.total()
		err := run(args, report)
		if err == nil && report.total() == found {
			err = errors.New("no tests found")
		}
		if err != nil {
			fmt.Printf("FAIL  go test: %v\n", err)
			ok = false
		}
	}
	report.printSlowest(10, 5*time.Second)
	fmt.Printf("%s in %s\n", report.summary(), time.Since(started).Round(time.Second))
	if !ok || !report.ok() {
		os.Exit(1)
	}
}

// split cuts the arguments into groups at each "--". What stands before the first one
// is a group as well.
func split(args []string) [][]string {
	var groups [][]string
	for len(args) > 0 {
		end := slices.Index(args, "--")
		if end < 0 {
			end = len(args)
		}
		if end > 0 {
			groups = append(groups, args[:end])
		}
		args = args[min(end+1, len(args)):]
	}
	return groups
}

// run runs one `go test` and feeds the report with its events. What the go command
// says on stderr (downloads, mostly) goes through unchanged.
func run(args []string, report *report) error {
	cmd := exec.Command("go", command(args)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := report.read(out)
	// A child must not hang on a pipe that nobody reads.
	_, _ = io.Copy(io.Discard, out)
	if err := cmd.Wait(); err != nil {
		return err
	}
	return readErr
}

// command puts -json where the go command wants it: after -C, which has to come first.
func command(args []string) []string {
	at := 0
	if len(args) > 1 && args[0] == "-C" {
		at = 2
	}
	return slices.Concat([]string{"test"}, args[:at], []string{"-json"}, args[at:])
}

// abbreviate writes long package lists as their first few.
func abbreviate(args []string) string {
	const shown = 12
	if len(args) <= shown {
		return strings.Join(args, " ")
	}
	return fmt.Sprintf("%s … and %d more", strings.Join(args[:shown], " "), len(args)-shown)
}
