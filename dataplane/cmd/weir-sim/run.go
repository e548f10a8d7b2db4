package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/weirhq/weir/dataplane/sim"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/strict/flags"
	"github.com/weirhq/weir/shared/tuning"
)

// Exit codes.
const (
	exitOK       = 0
	exitFailed   = 1 // could not simulate, or could not write
	exitUsage    = 2 // the arguments are invalid
	exitViolated = 3 // the simulation ran, and a promise was broken
)

type cli struct {
	Run  runCommand  `cmd:"" help:"Simulate a scenario."`
	Play playCommand `cmd:"" help:"Play a transcript, and print each step whose outcome differs."`
	List listCommand `cmd:"" help:"Describe the scenarios."`

	Windows windowsCommand `cmd:"" help:"Compare both windows with an exact log, by kinds of arrivals on one node."`
}

type runCommand struct {
	Scenario   string        `arg:"" help:"Name of the scenario: see weir-sim list."`
	Seed       uint64        `default:"1" help:"Seed of the simulation. The same seed gives the same run, without --jitter."`
	JSON       bool          `name:"json" xor:"form" help:"Print one JSON object instead of a table."`
	Tuning     string        `placeholder:"FILE" help:"Tuning document for the fleet, or preset:NAME (default, rfc)."`
	Compare    string        `placeholder:"FILE" help:"Second tuning document or preset, run with the same seed and printed next to the first."`
	Plot       bool          `xor:"form" help:"Draw overshoot against floor, and load against feed interval, around the tuning. Takes a dozen more runs."`
	Duration   time.Duration `placeholder:"DURATION" help:"How long there is traffic (1s to 24h). Default: the scenario's."`
	NodeShare  string        `enum:",wait,flush" default:"" placeholder:"NAME" help:"Node share of the namespace (wait, flush). Default: the scenario's."`
	Window     string        `placeholder:"WINDOW" help:"Window of the namespace (cells or precise). Default: the scenario's."`
	RedisDelay time.Duration `placeholder:"DURATION" help:"How long each call to Redis takes (up to 10s). Default: the scenario's."`
	RedisGone  bool          `help:"Let Redis refuse every call from the end of the warm-up on."`
	Jitter     bool          `help:"Keep the limiters' own jitter: closer to a real fleet, but runs with the same seed differ."`
}

type listCommand struct {
	Names bool `help:"Print only the names."`
}

// console is where commands write to.
type console struct{ stdout, stderr io.Writer }

var errViolated = errors.New("a promise was broken")

func run(args []string, stdout, stderr io.Writer) int {
	var c cli
	exited := -1
	parser, err := kong.New(&c, flags.Strict(), kong.Name("weir-sim"), kong.Writers(stdout, stderr),
		kong.Exit(func(code int) { exited = code }),
		kong.Description("Regions of real limiters in virtual time: overshoot, convergence and load of a scenario, by seed."))
	if err != nil {
		fmt.Fprintf(stderr, "weir-sim: %v\n", err)
		return exitFailed
	}
	command, err := parser.Parse(args)
	if exited >= 0 {
		return exited // --help has been printed
	}
	if err != nil {
		fmt.Fprintf(stderr, "weir-sim: %v\n", err)
		return exitUsage
	}
	err = command.Run(&console{stdout, stderr})
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errViolated):
		return exitViolated
	}
	fmt.Fprintf(stderr, "weir-sim: %v\n", err)
	if errors.Is(err, sim.ErrInvalid) || errors.Is(err, tuning.ErrInvalid) {
		return exitUsage
	}
	return exitFailed
}

// Run simulates once, or two tunings side by side. It reads both tunings first, so that a fault in the second shows at
// once.
func (r runCommand) Run(c *console) error {
	scenario, err := sim.Lookup(r.Scenario)
	if err != nil {
		return err
	}
	names := []string{r.Tuning}
	if r.Compare != "" {
		names = append(names, r.Compare)
	}
	runs := make([]sim.Options, len(names))
	for i, name := range names {
		if runs[i], err = r.options(name); err != nil {
			return err
		}
	}
	reports := make([]sim.Report, len(runs))
	for i, o := range runs {
		if reports[i], err = sim.Run(scenario, o); err != nil {
			return err
		}
	}
	if err := r.print(c.stdout, reports); err != nil {
		return err
	}
	if err := r.plot(c, scenario); err != nil {
		return err
	}
	for _, report := range reports {
		if len(report.Violations) > 0 {
			return errViolated
		}
	}
	return nil
}

func (r runCommand) options(name string) (sim.Options, error) {
	o := sim.Options{Seed: r.Seed, Duration: r.Duration, KeepJitter: r.Jitter,
		NodeShare: r.NodeShare, RedisDelay: r.RedisDelay, RedisGone: r.RedisGone, Window: store.Window(r.Window)}
	if name != "" {
		set, err := readTuning(name)
		if err != nil {
			return sim.Options{}, err
		}
		o.Tuning, o.TuningName = &set, name
	}
	return o, nil
}

// plot draws the requested charts, and prints its progress to standard error.
func (r runCommand) plot(c *console, s sim.Scenario) error {
	if !r.Plot {
		return nil
	}
	o, err := r.options(r.Tuning)
	if err != nil {
		return err
	}
	curves, err := sim.Sweep(s, o, func(done, of int) { fmt.Fprintf(c.stderr, "weir-sim: point %d of %d\n", done+1, of) })
	if err != nil {
		return err
	}
	return curves.WriteText(c.stdout)
}

// readTuning reads a document from a file, or a preset.
func readTuning(name string) (tuning.Tuning, error) {
	if preset, ok := strings.CutPrefix(name, "preset:"); ok {
		return tuning.Preset(preset)
	}
	document, err := os.ReadFile(name)
	if err != nil {
		return tuning.Tuning{}, fmt.Errorf("tuning: %w", err)
	}
	set, err := tuning.Parse(document)
	if err != nil {
		return tuning.Tuning{}, fmt.Errorf("tuning %s: %w", name, err)
	}
	return set, nil
}

func (r runCommand) print(w io.Writer, reports []sim.Report) error {
	var err error
	switch {
	case r.JSON && len(reports) == 1:
		err = writeJSON(w, reports[0])
	case r.JSON:
		err = writeJSON(w, sim.Compare(reports[0], reports[1]))
	case len(reports) == 1:
		err = reports[0].WriteTable(w)
	default:
		err = sim.Compare(reports[0], reports[1]).WriteTable(w)
	}
	if err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// Run describes the scenarios.
func (l listCommand) Run(c *console) error {
	for i, s := range sim.Scenarios() {
		if l.Names {
			fmt.Fprintln(c.stdout, s.Name)
			continue
		}
		if i > 0 {
			fmt.Fprintln(c.stdout)
		}
		fmt.Fprintf(c.stdout, "%s: %s\n    %v of traffic. %s\n", s.Name, s.Summary, s.Duration, s.Doc)
	}
	return nil
}

type playCommand struct {
	Transcript string `arg:"" placeholder:"FILE" help:"The transcript: see dataplane/sim/README.md."`
}

// Run plays a transcript.
func (p playCommand) Run(c *console) error {
	text, err := os.ReadFile(p.Transcript)
	if err != nil {
		return fmt.Errorf("transcript: %w", err)
	}
	script, err := sim.ParseTranscript(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", p.Transcript, err)
	}
	mismatches, err := sim.Play(script)
	if err != nil {
		return err
	}
	for _, mismatch := range mismatches {
		fmt.Fprintln(c.stdout, mismatch)
	}
	if len(mismatches) > 0 {
		return errViolated
	}
	fmt.Fprintf(c.stdout, "%s: as written\n", p.Transcript)
	return nil
}

type windowsCommand struct {
	Seed     uint64        `default:"1" help:"Seed of the simulation."`
	Duration time.Duration `placeholder:"DURATION" help:"How long there is traffic (1s to 24h). Default: that of the scenario arrivals."`
}

// Run simulates the scenario arrivals with each window, and prints a table of both.
func (c windowsCommand) Run(out *console) error {
	table, err := sim.CompareWindows(sim.Options{Seed: c.Seed, Duration: c.Duration, Unweighed: true})
	if err != nil {
		return err
	}
	if err := table.WriteText(out.stdout); err != nil {
		return fmt.Errorf("print the table: %w", err)
	}
	if len(table.Cells.Violations)+len(table.Precise.Violations) > 0 {
		return errViolated
	}
	return nil
}
