package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

// sample is a line of a benchmark's output: its figures by unit.
type sample struct {
	cpus    int
	figures map[string]float64
}

// parse reads the output of a process.
func parse(out io.Reader) (samples []sample, cpu string, err error) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "cpu: "); ok {
			cpu = name
		}
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		s := sample{cpus: cpusOf(fields[0]), figures: map[string]float64{}}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, "", fmt.Errorf("benchmark line %q: %w", lines.Text(), err)
			}
			s.figures[fields[i+1]] = value
		}
		samples = append(samples, s)
	}
	return samples, cpu, lines.Err()
}

// cpusOf reads the number that Go appends to a benchmark's name unless it is 1.
func cpusOf(name string) int {
	if n, err := strconv.Atoi(name[strings.LastIndex(name, "-")+1:]); err == nil {
		return n
	}
	return 1
}

// disturbedFrom is how far the mean may be above the typical decision before the
// processors were plainly not there all the time.
const disturbedFrom = 1.25

func (s sample) disturbed() bool {
	typical, ok := s.figures[workload.UnitTypical]
	return ok && s.cpus > 1 && s.figures["ns/op"] > disturbedFrom*typical
}

// ns returns the better of a benchmark's two figures: see workload.UnitTypical.
func (s sample) ns() float64 {
	if typical, ok := s.figures[workload.UnitTypical]; ok && s.cpus == 1 {
		return typical
	}
	return s.figures["ns/op"]
}

// undisturbed reports whether there is a good sample for every number of processors.
func undisturbed(samples []sample) bool {
	good := map[int]bool{}
	for _, s := range samples {
		good[s.cpus] = good[s.cpus] || !s.disturbed()
	}
	for _, ok := range good {
		if !ok {
			return false
		}
	}
	return true
}

// what identifies a figure.
type what struct {
	in      string // the case
	limiter string
	cpus    int
}

// round has the measurements of a limiter in a case in a round.
type round struct {
	ns        float64
	figures   map[string]float64
	wrong     float64 // the highest share of any sample, in percent
	disturbed bool    // there was no good sample
}

// results hold one round after another. The n-th rounds of all limiters in a case were
// measured next to each other.
type results map[what][]round

// add condenses the samples of a round to the fastest of the good samples, or of all samples if none is good. Other
// work on the machine, and other machines' work on the same cores, only adds time.
func (r results) add(e entry, samples []sample) {
	for _, cpus := range []int{1, 2} {
		var good, all []sample
		for _, s := range samples {
			if s.cpus == cpus {
				all = append(all, s)
				if !s.disturbed() {
					good = append(good, s)
				}
			}
		}
		if len(all) == 0 {
			continue
		}
		disturbed := len(good) == 0
		if disturbed {
			good = all
		}
		slices.SortFunc(good, func(a, b sample) int { return cmp.Compare(a.ns(), b.ns()) })
		best := good[0]
		wrong := 0.0
		for _, s := range all {
			wrong = max(wrong, s.figures[workload.UnitWrong])
		}
		id := what{e.Name, e.limiter, cpus}
		r[id] = append(r[id], round{best.ns(), best.figures, wrong, disturbed})
	}
}

// ns returns the median over rounds. disturbed reports whether most rounds were disturbed.
func (r results) ns(id what) (median float64, disturbed, ok bool) {
	var all []float64
	bad := 0
	for _, one := range r[id] {
		all = append(all, one.ns)
		if one.disturbed {
			bad++
		}
	}
	return medianOf(all), 2*bad > len(all), len(all) > 0
}

// figure returns the median over rounds of the figures in a unit.
func (r results) figure(id what, unit string) (median float64, ok bool) {
	var all []float64
	for _, one := range r[id] {
		all = append(all, one.figures[unit])
	}
	return medianOf(all), len(all) > 0
}

// wrong returns the highest share of wrong decisions in any round, in percent.
func (r results) wrong(id what) (most float64, ok bool) {
	for _, one := range r[id] {
		most, ok = max(most, one.wrong), true
	}
	return most, ok
}

// ratio returns the median of the ratios within each round. A disturbance that lasts for a round does not affect a
// ratio.
func (r results) ratio(of, to what) (median float64, ok bool) {
	var all []float64
	for i := range min(len(r[of]), len(r[to])) {
		all = append(all, r[of][i].ns/r[to][i].ns)
	}
	return medianOf(all), len(all) > 0
}

func medianOf(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	if n := len(sorted); n%2 == 0 {
		return (sorted[n/2-1] + sorted[n/2]) / 2
	}
	return sorted[len(sorted)/2]
}
