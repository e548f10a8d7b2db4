package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/weirhq/weir/dataplane/sim/hunt"
)

// machine runs histories, each in an instance of its own, which has nothing of the world around it: its random numbers
// come from the seed, its clocks move by what it sleeps, and there is one thread.
type machine struct {
	runtime wazero.Runtime
	guest   wazero.CompiledModule
	scratch string
	within  time.Duration // that a history has to end in; 0 is withinDefault
}

const (
	// withinDefault is of a machine that plays a history in a second or two, and of one that has much else to do.
	withinDefault = time.Minute

	// guestPages bound a history's memory, as one may also collect what it has for ever: 1 GiB.
	guestPages = 1 << 14
)

// build makes the guest of the module in dir, with what an overlay replaces, if there is one.
func build(ctx context.Context, dir, overlay, to string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-overlay="+overlay, "-o", to, "./dataplane/sim/hunt/guest")
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("build the guest in %s: %w", dir, err)
	}
	return nil
}

// newMachine builds and compiles the guest of the module in dir, with a bug if there is one. close removes what it
// leaves.
func newMachine(ctx context.Context, dir string, bug *planted) (*machine, error) {
	scratch, err := os.MkdirTemp("", "weir-hunt")
	if err != nil {
		return nil, err
	}
	config := wazero.NewRuntimeConfigCompiler().WithCloseOnContextDone(true).WithMemoryLimitPages(guestPages)
	m := &machine{scratch: scratch, runtime: wazero.NewRuntimeWithConfig(ctx, config)}
	if err := m.load(ctx, dir, bug); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *machine) load(ctx context.Context, dir string, bug *planted) (err error) {
	overlay := ""
	if bug != nil {
		if overlay, err = bug.overlay(dir, m.scratch); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(m.root(), "dev"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(m.root(), "dev", "null"), nil, 0o644); err != nil {
		return err
	}
	guest := filepath.Join(m.scratch, "guest.wasm")
	if err := build(ctx, dir, overlay, guest); err != nil {
		return err
	}
	code, err := os.ReadFile(guest)
	if err != nil {
		return err
	}
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, m.runtime); err != nil {
		return err
	}
	if m.guest, err = m.runtime.CompileModule(ctx, code); err != nil {
		return fmt.Errorf("compile the guest: %w", err)
	}
	return nil
}

func (m *machine) close() {
	_ = m.runtime.Close(context.Background())
	_ = os.RemoveAll(m.scratch)
}

// root is a guest's file system: the runner of package testing writes to /dev/null.
func (m *machine) root() string { return filepath.Join(m.scratch, "root") }

// errDied is a history that ended in a panic, also when goroutines are left or all of them wait for ever, or one that
// had not ended when its time was over.
var errDied = errors.New("the history did not end")

// play runs one history.
func (m *machine) play(ctx context.Context, seed uint64, without hunt.Set) (hunt.Result, error) {
	var stdout, stderr bytes.Buffer
	ns := int64(1_000_000_000)
	tick := func() int64 { ns += 100; return ns }
	config := wazero.NewModuleConfig().WithName("").
		WithArgs("guest", strconv.FormatUint(seed, 10), without.String()).
		WithStdout(&stdout).WithStderr(&stderr).
		WithFSConfig(wazero.NewFSConfig().WithDirMount(m.root(), "/")).
		WithRandSource(rand.NewChaCha8(chaChaSeed(seed))).
		WithNanotime(tick, sys.ClockResolution(1)).
		WithWalltime(func() (int64, int32) { t := tick(); return t / 1e9, int32(t % 1e9) }, sys.ClockResolution(1)).
		WithNanosleep(func(d int64) { ns += d })
	within := cmp.Or(m.within, withinDefault)
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	instance, err := m.runtime.InstantiateModule(limited, m.guest, config)
	if instance != nil {
		defer func() { _ = instance.Close(ctx) }()
	}
	var exit *sys.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == sys.ExitCodeDeadlineExceeded {
		return hunt.Result{}, fmt.Errorf("%w within %v", errDied, within)
	}
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 0) {
		return hunt.Result{}, fmt.Errorf("%w: %w\n%s", errDied, err, stderr.Bytes())
	}
	var result hunt.Result
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		return hunt.Result{}, fmt.Errorf("result of seed %d: %w", seed, err)
	}
	return result, nil
}

func chaChaSeed(seed uint64) (s [32]byte) {
	for i := range 8 {
		s[i] = byte(seed >> (8 * i))
	}
	return s
}
