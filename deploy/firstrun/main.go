// Command firstrun measures what someone meets who has just heard of Weir: how long it
// takes, on a machine that has nothing, from `make run` to the first decision, and to a
// first rollout that was approved in the console.
//
//	make first-run
//
// The machine is a bare Debian in a directory of its own, made anew by mmdebstrap, with
// what the README asks for and no more: git, make, curl, Go, Node's npm. No cache of Go, npm
// or apt is in it. What is done there is read from what `make run` prints; the browser,
// which people have, is this machine's. It takes root, mmdebstrap and `make setup`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// What the design promises to a new user.
const (
	decisionIn = 3 * time.Minute
	rolloutIn  = 10 * time.Minute
)

func main() {
	node := flag.Bool("node", true,
		"Node and npm are there, as the README asks; without them `make run` installs Debian's, which are many packages")
	suite := flag.String("suite", "bookworm", "release of Debian")
	keep := flag.Bool("keep", false, "keep the machine's directory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := measure(ctx, *suite, *node, *keep); err != nil {
		fmt.Fprintln(os.Stderr, "firstrun:", err)
		stop()
		os.Exit(1)
	}
}

func measure(ctx context.Context, suite string, node, keep bool) (err error) {
	dir, err := os.MkdirTemp("", "weir-first-run-")
	if err != nil {
		return fmt.Errorf("a directory for the machine: %w", err)
	}
	defer func() {
		if !keep {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	fmt.Println("firstrun: a bare machine in", dir)
	m, err := newMachine(ctx, filepath.Join(dir, "root"), suite, node)
	if err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return fmt.Errorf("how busy the machine is: %w", err)
	}
	fmt.Printf("firstrun: load before it %s\n", strings.Join(strings.Fields(string(load))[:3], " "))

	began := time.Now()
	step := func(what string) { fmt.Printf("firstrun: %5.1f s  %s\n", time.Since(began).Seconds(), what) }
	step("make run")
	run, err := m.makeRun(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, run.stop()) }()
	printed, err := run.introduced(ctx)
	if err != nil {
		return err
	}
	step("Weir runs")
	if err := m.decide(ctx, printed); err != nil {
		return err
	}
	decision := time.Since(began)
	step("first decision")
	if err := rollout(ctx, printed, step); err != nil {
		return err
	}
	return errors.Join(
		within("the first decision", decision, decisionIn),
		within("the first rollout", time.Since(began), rolloutIn))
}

func within(what string, took, most time.Duration) error {
	if took > most {
		return fmt.Errorf("%s came after %.0f s, want at most %.0f", what, took.Seconds(), most.Seconds())
	}
	return nil
}

var (
	curl    = regexp.MustCompile(`(?m)^  (curl .*\\\n.*)$`)
	console = regexp.MustCompile(`(http://\S+)/console/rollouts/new`)
)

// decide runs the command that was printed, to the letter.
func (m machine) decide(ctx context.Context, printed string) error {
	command := curl.FindStringSubmatch(printed)
	if command == nil {
		return fmt.Errorf("no curl to try in what `make run` printed:\n%s", printed)
	}
	out, err := m.command(ctx, "sh", "-c", command[1]).Output()
	if err != nil {
		return fmt.Errorf("%s: %w", command[1], err)
	}
	var answer struct{ Allowed bool }
	if err := json.Unmarshal(out, &answer); err != nil || !answer.Allowed {
		return fmt.Errorf("%s: answered %q", command[1], out)
	}
	return nil
}

// rollout starts one at the address that was printed, and approves it, in a browser.
func rollout(ctx context.Context, printed string, step func(string)) error {
	address := console.FindStringSubmatch(printed)
	if address == nil {
		return fmt.Errorf("no console in what `make run` printed:\n%s", printed)
	}
	browser := os.Getenv("CHROMIUM_BIN")
	if browser == "" {
		browser = "/usr/bin/chromium"
	}
	cmd := exec.CommandContext(ctx, "node", "deploy/firstrun/rollout.js", address[1], browser)
	cmd.Stderr = os.Stderr
	said, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("drive the browser: %w", err)
	}
	lines(said, step)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("the rollout in the console: %w", err)
	}
	return nil
}
