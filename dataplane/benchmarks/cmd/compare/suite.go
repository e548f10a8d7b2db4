package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// suite is the two compiled test binaries.
type suite struct {
	dir string
	cpu string // the processor, as Go's benchmarks name it
}

func build(ctx context.Context) (*suite, error) {
	dir, err := os.MkdirTemp("", "weir-compare-")
	if err != nil {
		return nil, err
	}
	s := &suite{dir: dir}
	for module, separate := range map[string]bool{".": false, gubernator: true} {
		cmd := exec.CommandContext(ctx, "go", "test", "-c", "-o", s.binary(separate), ".")
		cmd.Dir, cmd.Stdout, cmd.Stderr = module, os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			s.close()
			return nil, fmt.Errorf("build the benchmarks in %s (run this in the benchmarks module): %w", module, err)
		}
	}
	return s, nil
}

func (s *suite) close() { _ = os.RemoveAll(s.dir) } // a temporary folder: at worst it stays

func (s *suite) binary(separate bool) string {
	if separate {
		return filepath.Join(s.dir, "separate.test")
	}
	return filepath.Join(s.dir, "benchmarks.test")
}

// passes is how often a round walks the limiters of a case of a single identifier, which
// takes a second each: a core whose other half works for somebody else is half as fast for
// seconds, and then is not.
const passes = 3

// measure walks the entries once a round. Within a case everybody goes first in some
// round.
func (s *suite) measure(ctx context.Context, p plan, entries []entry) (results, error) {
	r := results{}
	for round := range p.rounds {
		for _, of := range byCase(rotated(entries, round)) {
			fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, p.rounds, of[0].Name)
			walks := 1
			if of[0].Identifiers == 1 {
				walks = passes
			}
			samples := make([][]sample, len(of))
			for walk := range walks {
				for i, e := range of {
					if walk > 0 && e.separate { // slow, and far behind
						continue
					}
					more, err := s.measureOne(ctx, p, e)
					if err != nil {
						return nil, fmt.Errorf("round %d, %s/%s: %w", round+1, e.Name, e.limiter, err)
					}
					samples[i] = append(samples[i], more...)
				}
			}
			for i, e := range of {
				r.add(e, samples[i])
			}
		}
	}
	return r, nil
}

// byCase groups entries by case. Entries of the same case must follow each other.
func byCase(entries []entry) (cases [][]entry) {
	for i, e := range entries {
		if i == 0 || e.Name != entries[i-1].Name {
			cases = append(cases, nil)
		}
		cases[len(cases)-1] = append(cases[len(cases)-1], e)
	}
	return cases
}

// attempts is how often an entry is measured again in a round because the machine had
// something else to do.
const attempts = 3

func (s *suite) measureOne(ctx context.Context, p plan, e entry) (samples []sample, err error) {
	for range attempts {
		more, err := s.samples(ctx, p, e)
		if err != nil {
			return nil, err
		}
		samples = append(samples, more...)
		if undisturbed(samples) {
			break
		}
	}
	return samples, nil
}

// samples runs a process.
func (s *suite) samples(ctx context.Context, p plan, e entry) ([]sample, error) {
	repetitions := p.repetitions
	if e.separate {
		repetitions = 1
	}
	cmd := exec.CommandContext(ctx, s.binary(e.separate), "-test.run=^$", "-test.benchmem", "-test.cpu=1,2",
		fmt.Sprintf("-test.bench=^BenchmarkAllow$/^%s$/^%s$", e.Name, e.limiter),
		fmt.Sprintf("-test.benchtime=%dx", p.decisions), fmt.Sprintf("-test.count=%d", repetitions))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	samples, cpu, err := parse(bytes.NewReader(out))
	if err == nil && len(samples) == 0 {
		err = errors.New("the benchmark printed no figures")
	}
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	s.cpu = cpu
	return samples, nil
}

// rotated turns the entries of each case by n places.
func rotated(entries []entry, n int) (turned []entry) {
	for _, of := range byCase(entries) {
		at := n % len(of)
		turned = append(append(turned, of[at:]...), of[:at]...)
	}
	return turned
}
