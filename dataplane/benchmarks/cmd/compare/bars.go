package main

import (
	"fmt"

	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

// bar is something that Weir is held to: a figure, and the most that it may be.
type bar struct {
	text  string
	got   float64
	most  float64
	note  string
	found bool // the figure was measured
}

func (b bar) verdict() string {
	switch {
	case !b.found:
		return "not measured"
	case b.got <= b.most:
		return "pass"
	}
	return "**miss**"
}

const weir = "weir"

// bars returns all bars.
func (r results) bars() (all []bar) {
	hot, denied, handle := workload.Hot.Name, workload.Denied.Name, workload.Handle.Name
	for _, cpus := range []int{1, 2} {
		self := func(in string) what { return what{in, weir, cpus} }
		on := fmt.Sprintf(", %d CPU", cpus)
		all = append(all,
			r.ratioBar("hot / go-limiter's"+on, self(hot), what{hot, "go-limiter", cpus}, 0.85),
			r.ratioBar("hot / floor"+on, self(hot), what{hot, "floor", cpus}, 1.3),
			r.ratioBar("hot / floor-least"+on, self(hot), what{hot, "floor-least", cpus}, 1.3),
		)
		for _, in := range []string{workload.Uniform.Name, workload.Zipf.Name} {
			rival, _ := r.bestRival(in, cpus)
			b := r.ratioBar(in+" / best rival's"+on, self(in), what{in, rival, cpus}, 1)
			b.note = rival
			all = append(all, b)
		}
		all = append(all,
			r.ratioBar("denied / hot"+on, self(denied), self(hot), 1),
			r.ratioBar("handle / hot"+on, self(handle), self(hot), 0.6),
			r.ratioBar("batch4 / hot"+on, self(workload.Batch.Name), self(hot), 5),
		)
	}
	all = append(all, r.ratioBar("hot on 2 CPUs / on 1", what{hot, weir, 2}, what{hot, weir, 1}, 1))
	for _, c := range workload.Cases {
		if !c.Fresh {
			all = append(all, worst("allocations a decision, "+c.Name, c.Name, 0, func(id what) (float64, bool) {
				return r.figure(id, "allocs/op")
			}))
		}
	}
	memory, ok := r.figure(what{workload.Zipf.Name, weir, 1}, workload.UnitMemory)
	all = append(all, bar{text: "bytes an identifier, besides its own", got: memory, most: 200, found: ok})
	for _, c := range workload.Cases {
		all = append(all, worst("% of decisions wrong, "+c.Name, c.Name, 0, r.wrong))
	}
	return all
}

func (r results) ratioBar(text string, of, to what, most float64) bar {
	got, ok := r.ratio(of, to)
	return bar{text: text, got: got, most: most, found: ok}
}

// worst returns a bar on the higher of a figure on one CPU and on two.
func worst(text, in string, most float64, figure func(what) (float64, bool)) bar {
	b := bar{text: text, most: most}
	for _, cpus := range []int{1, 2} {
		got, ok := figure(what{in, weir, cpus})
		b.got, b.found = max(b.got, got), b.found || ok
	}
	return b
}

// bestRival returns the fastest limiter that you could use instead of Weir.
func (r results) bestRival(in string, cpus int) (name string, ok bool) {
	best := 0.0
	for _, l := range rivals() {
		ns, _, measured := r.ns(what{in, l, cpus})
		if measured && (!ok || ns < best) {
			name, best, ok = l, ns, true
		}
	}
	return name, ok
}
