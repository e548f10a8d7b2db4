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

// measure walks the entries once a round. Within a case everybody goes first in some
// round.
func (s *suite) measure(ctx context.Context, p plan, entries []entry) (results, error) {
	r := results{}
	for round := range p.rounds {
		in := ""
		for _, e := range rotated(entries, round) {
			if in != e.Name {
				in = e.Name
				fmt.Fprintf(os.Stderr, "round %d of %d: %s\n", round+1, p.rounds, in)
			}
			if err := s.measureOne(ctx, p, e, r); err != nil {
				return nil, fmt.Errorf("round %d, %s/%s: %w", round+1, e.Name, e.limiter, err)
			}
		}
	}
	return r, nil
}

// attempts is how often an entry is measured again in a round because the machine had
// something else to do.
const attempts = 3

func (s *suite) measureOne(ctx context.Context, p plan, e entry, r results) error {
	var samples []sample
	for range attempts {
		more, err := s.samples(ctx, p, e)
		if err != nil {
			return err
		}
		samples = append(samples, more...)
		if undisturbed(samples) {
			break
		}
	}
	r.add(e, samples)
	return nil
}

// samples runs one process.
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
	for len(entries) > 0 {
		end := 1
		for end < len(entries) && entries[end].Name == entries[0].Name {
			end++
		}
		at := n % end
		turned = append(append(turned, entries[at:end]...), entries[:at]...)
		entries = entries[end:]
	}
	return turned
}
