package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/weirhq/weir/dataplane/benchmarks"
	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

// names lists the limiters in the order of tables.
func names() (all []string) {
	for _, e := range everything() {
		if !slices.Contains(all, e.limiter) {
			all = append(all, e.limiter)
		}
	}
	return all
}

func rivals() []string {
	all := []string{gubernator}
	for _, l := range benchmarks.Limiters(workload.Hot) {
		if l.Rival {
			all = append(all, l.Name)
		}
	}
	return all
}

// print writes all tables as Markdown.
func (r results) print(w io.Writer) {
	r.printTimes(w)
	r.printMemory(w)
	r.printRatios(w)
	r.printBars(w)
}

const absent = "–"

func row(w io.Writer, cells ...string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }

func head(w io.Writer, cells ...string) {
	row(w, cells...)
	row(w, slices.Repeat([]string{"---"}, len(cells))...)
}

func (r results) printTimes(w io.Writer) {
	fmt.Fprint(w, "Nanoseconds a decision (batch4: a call), on 1 CPU / on 2:\n\n")
	cells := []string{"limiter"}
	for _, c := range workload.Cases {
		cells = append(cells, c.Name)
	}
	head(w, cells...)
	someDisturbed := false
	for _, name := range names() {
		cells = []string{name}
		for _, c := range workload.Cases {
			one, _, ok := r.ns(what{c.Name, name, 1})
			two, disturbed, _ := r.ns(what{c.Name, name, 2})
			switch {
			case !ok:
				cells = append(cells, absent)
			case disturbed:
				someDisturbed = true
				cells = append(cells, fmt.Sprintf("%.0f / ~%.0f", one, two))
			default:
				cells = append(cells, fmt.Sprintf("%.0f / %.0f", one, two))
			}
		}
		row(w, cells...)
	}
	if someDisturbed {
		fmt.Fprint(w, "\n~ the machine did not give two CPUs all the time.\n")
	}
}

func (r results) printMemory(w io.Writer) {
	fmt.Fprint(w, "\nMemory, and answers that were wrong:\n\n")
	head(w, "limiter", "B an identifier", "known: B / allocations", "new: B / allocations", "% wrong at most")
	for _, name := range names() {
		memory, ok := r.figure(what{workload.Zipf.Name, name, 1}, workload.UnitMemory)
		if !ok {
			row(w, name, absent, absent, absent, absent)
			continue
		}
		known, _ := r.figure(what{workload.Zipf.Name, name, 1}, "B/op")
		knownAllocs, _ := r.figure(what{workload.Zipf.Name, name, 1}, "allocs/op")
		first, _ := r.figure(what{workload.First.Name, name, 1}, "B/op")
		firstAllocs, _ := r.figure(what{workload.First.Name, name, 1}, "allocs/op")
		wrong := 0.0
		for id := range r {
			if id.limiter == name {
				share, _ := r.wrong(id)
				wrong = max(wrong, share)
			}
		}
		row(w, name, fmt.Sprintf("%.0f", memory), fmt.Sprintf("%.0f / %.0f", known, knownAllocs),
			fmt.Sprintf("%.0f / %.0f", first, firstAllocs), fmt.Sprintf("%.3g", wrong))
	}
}

func (r results) printRatios(w io.Writer) {
	fmt.Fprint(w, "\nWeir's time divided by others':\n\n")
	head(w, "case", "CPUs", "floor", "floor-least", "go-limiter", "best rival")
	for _, c := range workload.Cases {
		for _, cpus := range []int{1, 2} {
			if c.Ours {
				continue
			}
			to := func(name string) string {
				if ratio, ok := r.ratio(what{c.Name, weir, cpus}, what{c.Name, name, cpus}); ok {
					return fmt.Sprintf("%.2f", ratio)
				}
				return absent
			}
			best, _ := r.bestRival(c.Name, cpus)
			row(w, c.Name, fmt.Sprint(cpus), to("floor"), to("floor-least"), to("go-limiter"), to(best)+" "+best)
		}
	}
}

func (r results) printBars(w io.Writer) {
	fmt.Fprint(w, "\nBars:\n\n")
	head(w, "bar", "at most", "measured", "")
	for _, b := range r.bars() {
		got := absent
		if b.found {
			got = strings.TrimSpace(fmt.Sprintf("%.4g %s", b.got, b.note))
		}
		row(w, b.text, fmt.Sprintf("%g", b.most), got, b.verdict())
	}
}
