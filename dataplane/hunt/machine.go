package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/weirhq/weir/dataplane/sim/hunt"
)

// machine runs histories, each in an instance of its own, which has nothing of the world around it. Its random numbers
// come from the seed, only its sleeps move its clocks, and there is a single thread. Workers play the histories:
// processes that can be killed. wazero could instead add checks to the code that look whether the time is over, but
// such code takes much longer.
type machine struct {
	scratch string
	within  time.Duration // that a history has to end in; 0 is withinDefault

	mu   sync.Mutex
	idle []*worker
}

// withinDefault suits a machine that plays a history in half a second, and also a busy machine.
const withinDefault = time.Minute

// build builds the guest of the module in dir, with the files of an overlay if there is an overlay.
func build(ctx context.Context, dir, overlay, to string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay="+overlay, "-ldflags=-s -w", "-o", to,
		"./dataplane/sim/hunt/guest")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the guest in %s: %w", dir, err)
	}
	return nil
}

// newMachine builds and compiles the guest of the module in dir; change, unless it is nil, changes files of the build.
// close removes the files that it leaves.
func newMachine(ctx context.Context, dir string, change changer) (*machine, error) {
	scratch, err := os.MkdirTemp("", "weir-hunt")
	if err != nil {
		return nil, err
	}
	m := &machine{scratch: scratch}
	if err := m.compile(ctx, dir, change); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// A changer writes files that a build takes in place of others into a directory, and the overlay that go build needs
// for that, whose path it returns.
type changer func(dir, scratch string) (overlay string, err error)

func (m *machine) compile(ctx context.Context, dir string, change changer) (err error) {
	overlay := ""
	if change != nil {
		if overlay, err = change(dir, m.scratch); err != nil {
			return err
		}
	}
	if err := build(ctx, dir, overlay, filepath.Join(m.scratch, guestFile)); err != nil {
		return err
	}
	p, err := newPlayer(ctx, m.scratch) // into the cache that all workers share
	if err != nil {
		return err
	}
	return p.runtime.Close(ctx)
}

func (m *machine) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, w := range m.idle {
		w.end()
	}
	m.idle = nil
	_ = os.RemoveAll(m.scratch)
}

// errDied is returned for a history that ended in a panic, also because goroutines were left or all of them waited for
// ever, and for a history that had not ended when its time was over.
var errDied = errors.New("the history did not end")

// death is how a history died. Two deaths of the same kind count as the same death.
type death struct{ kind, text string }

func (d *death) Error() string { return fmt.Sprintf("%v: %s", errDied, d.text) }

func (d *death) Unwrap() error { return errDied }

const deathBytesMax = 8 << 10 // of a text: a panic has the stacks of all goroutines

// deathOf reads the last output of a guest that died. The kind is the line of its panic, or of its fatal error, up to
// the first number.
func deathOf(text string) *death {
	kind := "unknown"
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			kind, _, _ = strings.Cut(strings.TrimSpace(line), "0x")
			kind = strings.TrimRightFunc(strings.FieldsFunc(kind, unicode.IsDigit)[0], unicode.IsSpace)
			break
		}
	}
	return &death{kind, text[:min(len(text), deathBytesMax)]}
}

// bound returns how long a history may take.
func (m *machine) bound() time.Duration { return cmp.Or(m.within, withinDefault) }

// play runs a history.
func (m *machine) play(ctx context.Context, seed uint64, without hunt.Set) (hunt.Result, error) {
	w, err := m.worker()
	if err != nil {
		return hunt.Result{}, err
	}
	within := m.bound()
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	answer, err := w.play(limited, order{Seed: seed, Without: without.String()})
	if err != nil {
		w.end()
		if ctx.Err() == nil && limited.Err() != nil {
			return hunt.Result{}, &death{"time", fmt.Sprintf("it took longer than %v", within)}
		}
		return hunt.Result{}, cmp.Or(ctx.Err(), fmt.Errorf("seed %d: %w", seed, err))
	}
	m.mu.Lock()
	m.idle = append(m.idle, w)
	m.mu.Unlock()
	if answer.Died != "" {
		return hunt.Result{}, deathOf(answer.Died)
	}
	return answer.Result, nil
}

// worker returns a worker that waits for a seed, or a new worker.
func (m *machine) worker() (*worker, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := len(m.idle) - 1; last >= 0 {
		w := m.idle[last]
		m.idle = m.idle[:last]
		return w, nil
	}
	return startWorker(m.scratch)
}
