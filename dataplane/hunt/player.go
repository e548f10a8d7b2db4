package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"
	"github.com/tetratelabs/wazero/sys"

	"github.com/weirhq/weir/dataplane/sim/hunt"
)

const (
	// guestPages bounds a history's memory, because a history may collect data for ever: 1 GiB.
	guestPages = 1 << 14

	// The files in a machine's directory.
	guestFile, cacheDir, rootDir = "guest.wasm", "cache", "root"
)

// player plays histories in its own process, one at a time.
type player struct {
	runtime wazero.Runtime
	guest   wazero.CompiledModule
	root    string // of the guest's file system: the runner of package testing writes to /dev/null
}

// newPlayer compiles the guest of a machine's directory, unless it is compiled already.
func newPlayer(ctx context.Context, dir string) (*player, error) {
	p := &player{root: filepath.Join(dir, rootDir)}
	if err := os.MkdirAll(filepath.Join(p.root, "dev"), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(p.root, "dev", "null"), nil, 0o644); err != nil {
		return nil, err
	}
	code, err := os.ReadFile(filepath.Join(dir, guestFile))
	if err != nil {
		return nil, err
	}
	cache, err := wazero.NewCompilationCacheWithDir(filepath.Join(dir, cacheDir))
	if err != nil {
		return nil, err
	}
	config := wazero.NewRuntimeConfigCompiler().WithCompilationCache(cache).WithMemoryLimitPages(guestPages)
	p.runtime = wazero.NewRuntimeWithConfig(ctx, config)
	if _, err := wasi_snapshot_preview1.Instantiate(ctx, p.runtime); err != nil {
		return nil, err
	}
	if p.guest, err = p.runtime.CompileModule(ctx, code); err != nil {
		return nil, fmt.Errorf("compile the guest: %w", err)
	}
	return p, nil
}

// play runs a history.
func (p *player) play(ctx context.Context, o order) (hunt.Result, error) {
	var stdout, stderr bytes.Buffer
	ns := int64(1_000_000_000)
	tick := func() int64 { ns += 100; return ns }
	config := wazero.NewModuleConfig().WithName("").
		WithArgs("guest", strconv.FormatUint(o.Seed, 10), o.Without).
		WithEnv("GOGC", "off").WithEnv("GOMEMLIMIT", "1GiB"). // a collection may change which goroutine runs first
		WithStdout(&stdout).WithStderr(&stderr).
		WithFSConfig(wazero.NewFSConfig().WithDirMount(p.root, "/")).
		WithRandSource(rand.NewChaCha8(chaChaSeed(o.Seed))).
		WithNanotime(tick, sys.ClockResolution(1)).
		WithWalltime(func() (int64, int32) { t := tick(); return t / 1e9, int32(t % 1e9) }, sys.ClockResolution(1)).
		WithNanosleep(func(d int64) { ns += d })
	instance, err := p.runtime.InstantiateModule(ctx, p.guest, config)
	if instance != nil {
		defer func() { _ = instance.Close(ctx) }()
	}
	var exit *sys.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 0) {
		return hunt.Result{}, fmt.Errorf("%w\n%s", err, stderr.Bytes())
	}
	var result hunt.Result
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		return hunt.Result{}, fmt.Errorf("result of seed %d: %w", o.Seed, err)
	}
	return result, nil
}

func chaChaSeed(seed uint64) (s [32]byte) {
	for i := range 8 {
		s[i] = byte(seed >> (8 * i))
	}
	return s
}
