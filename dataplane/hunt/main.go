// Command weir-hunt plays histories of drawn faults, a single execution for each seed, and looks for a history that
// breaks an invariant. See package hunt, which draws, plays and checks histories, and README.md.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/dataplane/internal/planted"
	"github.com/weirhq/weir/dataplane/sim/hunt"
)

type cli struct {
	Seed    *uint64       `help:"Play this seed alone, and print its transcript."`
	Without string        `placeholder:"STEPS" help:"Leave out these steps of --seed, such as 3,7-9."`
	From    uint64        `default:"1" help:"First seed."`
	Seeds   uint64        `default:"1000" help:"How many seeds; 0: as many as --for allows."`
	For     time.Duration `help:"Begin no further seed after this time; 0: no limit."`
	Twice   bool          `help:"Play each seed twice, and compare all that happens."`
	Procs   int           `help:"How many histories run at once; 0: one per processor."`
	Within  time.Duration `default:"1m" help:"How long a history may take; one that takes longer has failed."`
	Keep    bool          `help:"Go on after a seed that fails."`
	Hashes  string        `placeholder:"FILE" help:"Write each seed's hash to FILE, to compare builds with --steady."`
	Steady  bool          `help:"Have no order drawn by Go's runtime: builds that behave alike have the same hashes."`
	Planted string        `placeholder:"DIR" help:"Hunt for each bug of DIR/*.patch, with at most --seeds seeds; fail if one is not found."`
	Module  string        `default:"../.." help:"Directory of the module to hunt in."`
}

func main() {
	beWorker()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var c cli
	kong.Parse(&c, kong.Name("weir-hunt"),
		kong.Description("Search histories of drawn faults for one that breaks an invariant."))
	if err := c.run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "weir-hunt:", err)
		stop()
		os.Exit(1)
	}
}

var errBroken = errors.New("an invariant was broken")

func (c *cli) run(ctx context.Context, out io.Writer) error {
	if c.Seeds == 0 && c.For <= 0 && c.Seed == nil {
		return errors.New("--seeds 0 needs --for")
	}
	if c.Steady && c.Planted != "" {
		return errors.New("--steady compares builds, and --planted hunts: give one of them")
	}
	if c.Planted != "" {
		return c.prove(ctx, out)
	}
	var change changer
	if c.Steady {
		change = steady
	}
	m, err := newMachine(ctx, c.Module, change)
	if err != nil {
		return err
	}
	defer m.close()
	m.within = c.Within
	if c.Seed != nil {
		return c.replay(ctx, out, m)
	}
	h := hunter{machine: m, out: out, from: c.From, seeds: c.Seeds, until: c.For, twice: c.Twice, keep: c.Keep}
	err = h.run(ctx, c.procs())
	if c.Hashes != "" {
		err = cmp.Or(err, os.WriteFile(c.Hashes, h.tally.hashList(), 0o600))
	}
	return err
}

func (c *cli) procs() int {
	if c.Procs > 0 {
		return c.Procs
	}
	return runtime.GOMAXPROCS(0)
}

func (c *cli) prove(ctx context.Context, out io.Writer) error {
	if c.Seeds == 0 {
		return errors.New("--planted needs --seeds above 0")
	}
	bugs, err := planted.Read(c.Planted)
	if err != nil {
		return err
	}
	p := prover{module: c.Module, out: out, from: c.From, seeds: c.Seeds, within: c.Within}
	return p.run(ctx, bugs, c.procs())
}

func (c *cli) replay(ctx context.Context, out io.Writer, m *machine) error {
	without, err := hunt.ParseSet(c.Without)
	if err != nil {
		return err
	}
	result, err := m.play(ctx, *c.Seed, without)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, strings.Join(result.Lines, "\n"))
	fmt.Fprintf(out, "seed %d, hash %s\n", result.Seed, result.Hash)
	if len(result.Violations) > 0 {
		return errBroken
	}
	return nil
}
