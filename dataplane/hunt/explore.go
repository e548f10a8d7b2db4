package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/weirhq/weir/dataplane/internal/planted"
)

// explorer is the test that goes through all possible histories of rollouts. The test of the same name with Soak goes
// deeper for a time: see controlplane.
const explorer = "TestExploreRollouts"

var (
	exploredStates = regexp.MustCompile(`\}: (\d+) states,`)
	brokenRule     = regexp.MustCompile(`(?m)^ +explore_(?:soak_)?test\.go:\d+: \{[^}]*\}: ([^\d].*)$`)
)

// isOfControl reports whether a bug is in the control plane, where no history of a fleet shows it.
func isOfControl(bug *planted.Bug) bool { return strings.HasPrefix(bug.File, "controlplane/") }

// explore runs the explorer of rollouts with a bug.
func (p *prover) explore(ctx context.Context, bug *planted.Bug) (f finding, err error) {
	scratch, err := os.MkdirTemp("", "weir-explore")
	if err != nil {
		return f, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	overlay, err := bug.Overlay(p.module, scratch)
	if err != nil {
		return f, err
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-v", "-failfast", "-timeout=5m",
		"-run=^"+explorer+"(Soak)?$", "-overlay="+overlay, "./"+filepath.ToSlash(filepath.Dir(bug.File)))
	cmd.Dir, cmd.Env = p.module, append(os.Environ(), "WEIR_SOAK=1m")
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return f, fmt.Errorf("explore with %s: %w", bug.Name, err)
	}
	return explored(string(text))
}

// explored reads the explorer's output.
func explored(text string) (f finding, err error) {
	for _, found := range exploredStates.FindAllStringSubmatch(text, -1) {
		n, err := strconv.Atoi(found[1])
		if err != nil {
			return f, err
		}
		f.states += n
	}
	rule := brokenRule.FindStringSubmatch(text)
	switch {
	case rule != nil:
		f.broken = strconv.Quote(rule[1])
	case strings.Contains(text, "panic: "):
		f.broken = "ends" // also when the test's time is over
	case !strings.Contains(text, "--- PASS: "+explorer+" "):
		return f, fmt.Errorf("%w: the explorer did not run:\n%s", planted.ErrPatch, text)
	}
	return f, nil
}
