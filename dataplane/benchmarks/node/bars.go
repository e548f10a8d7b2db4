package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// bar is something that weir-node is held to: a figure, and the most or the least that it may be.
type bar struct {
	text        string
	got         float64
	most, least float64 // either of them is 0
	found       bool    // the figure was measured
}

func (b bar) verdict() string {
	switch {
	case !b.found:
		return "not measured"
	case b.most != 0 && b.got > b.most, b.least != 0 && b.got < b.least:
		return "**miss**"
	}
	return "pass"
}

func (b bar) bound() string {
	if b.least != 0 {
		return fmt.Sprintf("≥ %g", b.least)
	}
	return fmt.Sprintf("≤ %g", b.most)
}

// results are the rounds of each case.
type results map[string][]figures

func (f figures) cpu() float64  { return f.cpuMicros }
func (f figures) rate() float64 { return f.perSecond }

// bars returns all bars. In an open loop it leaves out bars on how much a server can do, because an open loop does not
// show that.
func (r results) bars(o options) (all []bar) {
	const echo, echoHTTP, stream = "bare grpc-go", "bare net/http", "grpc stream"
	rivals := []string{gubernator, ratelimit}
	unary := []string{"grpc", "rls"}
	for _, c := range unary {
		all = append(all, r.ratio("CPU", figures.cpu, c, echo, bar{most: 1.25}))
		for _, rival := range rivals {
			all = append(all, r.ratio("CPU", figures.cpu, c, rival, bar{most: 0.4}))
		}
	}
	all = append(all,
		r.absolute("CPU µs, "+stream, figures.cpu, stream, bar{most: 5}),
		r.ratio("CPU", figures.cpu, "json", echoHTTP, bar{most: 1.5}))
	if o.rate > 0 {
		return all
	}
	for _, c := range unary {
		for _, rival := range rivals {
			all = append(all, r.ratio("calls/s", figures.rate, c, rival, bar{least: 1.5}))
		}
	}
	for _, c := range unary {
		const ten = " batch of 10"
		all = append(all,
			r.ratio("decisions/s", figures.rate, c+ten, gubernator+ten, bar{least: 3}),
			r.ratio("decisions/s", figures.rate, c+ten, ratelimit+ten, bar{least: 2}))
	}
	return all
}

// ratio returns a bar on the median of the rounds' ratios, because a disturbance of a round affects both figures.
func (r results) ratio(text string, figure func(figures) float64, of, to string, b bar) bar {
	b.text = fmt.Sprintf("%s, %s / %s", text, of, to)
	var ratios []float64
	for i := range min(len(r[of]), len(r[to])) {
		ratios = append(ratios, figure(r[of][i])/figure(r[to][i]))
	}
	return b.with(ratios)
}

func (r results) absolute(text string, figure func(figures) float64, of string, b bar) bar {
	b.text = text
	var all []float64
	for _, f := range r[of] {
		all = append(all, figure(f))
	}
	return b.with(all)
}

func (b bar) with(rounds []float64) bar {
	if b.found = len(rounds) > 0; b.found {
		slices.Sort(rounds)
		b.got = rounds[len(rounds)/2]
	}
	return b
}

func printBars(out io.Writer, bars []bar) {
	fmt.Fprint(out, "\nBars:\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| bar\t| bound\t| measured\t| \t|")
	fmt.Fprintln(w, "| ---\t| ---\t| ---\t| ---\t|")
	for _, b := range bars {
		got := "–"
		if b.found {
			got = fmt.Sprintf("%.3g", b.got)
		}
		fmt.Fprintf(w, "| %s\t| %s\t| %s\t| %s\t|\n", b.text, b.bound(), got, b.verdict())
	}
	_ = w.Flush()
}
