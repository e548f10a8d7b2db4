// Node measures what one decision costs a server: the CPU time of its process,
// whatever the load on the other side of the socket costs, for each way into
// weir-node, beside servers that do nothing but answer.
//
//	go run . -seconds 3 -rounds 3           closed loop: as many calls as 64 callers make
//	go run . -rate 5000 -cases grpc         open loop: as many calls as were meant, and their latency
//
// Each case starts its server as a process of its own. Rounds take turns among the
// cases, so that whatever else the machine does falls on all of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

type options struct {
	cases   *regexp.Regexp
	seconds float64
	rounds  int
	callers int
	rate    float64
	rivals  string // the folder of their programs
}

func main() {
	if kind := os.Getenv(serverKind); kind != "" {
		fail(serve(kind))
		return
	}
	var o options
	pattern := flag.String("cases", ".", "regular expression of the cases to run")
	flag.Float64Var(&o.seconds, "seconds", 2, "how long a case is measured in a round")
	flag.IntVar(&o.rounds, "rounds", 3, "how often each case is measured; the median is shown")
	flag.IntVar(&o.callers, "callers", 64, "callers at the same time")
	flag.Float64Var(&o.rate, "rate", 0, "calls a second for an open loop; 0 is a closed loop")
	flag.Parse()
	o.cases = regexp.MustCompile(*pattern)
	fail(run(context.Background(), o))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

// figures are what one case showed in one round.
type figures struct {
	cpuMicros float64 // of the server, a decision
	perSecond float64 // decisions
	latency   *hdrhistogram.Histogram
}

func run(ctx context.Context, o options) (err error) {
	if o.rivals, err = os.MkdirTemp("", "weir-bench-rivals-"); err != nil {
		return err
	}
	defer os.RemoveAll(o.rivals)
	kinds := make(map[string]bool)
	for _, c := range cases {
		kinds[c.server] = kinds[c.server] || o.cases.MatchString(c.name)
	}
	if err := buildRivals(ctx, o.rivals, kinds); err != nil {
		return err
	}
	results := make(map[string][]figures)
	for range o.rounds {
		for _, c := range cases {
			if !o.cases.MatchString(c.name) {
				continue
			}
			f, err := measure(ctx, c, o)
			if err != nil {
				return fmt.Errorf("measure %s: %w", c.name, err)
			}
			results[c.name] = append(results[c.name], f)
		}
	}
	print(o, results)
	return nil
}

func print(o options, results map[string][]figures) {
	loop := "closed loop"
	if o.rate > 0 {
		loop = fmt.Sprintf("open loop of %v calls a second", o.rate)
	}
	fmt.Printf("%d rounds of %v s, %d callers, %s; %s, %d CPUs.\n\n", o.rounds, o.seconds, o.callers, loop, runtime.Version(), runtime.NumCPU())
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| case\t| server CPU µs/decision\t| beside\t| ratio\t| decisions/s\t| p50 ms\t| p99 ms\t| p99.9 ms\t|")
	fmt.Fprintln(w, "| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t|")
	for _, c := range cases {
		all := results[c.name]
		if len(all) == 0 {
			continue
		}
		m := median(all)
		ratio := "–"
		if bare := results[c.beside]; len(bare) > 0 {
			ratio = fmt.Sprintf("%.2f", m.cpuMicros/median(bare).cpuMicros)
		}
		ms := func(q float64) float64 { return float64(m.latency.ValueAtQuantile(q)) / 1000 }
		fmt.Fprintf(w, "| %s\t| %.1f\t| %s\t| %s\t| %.0f\t| %.2f\t| %.2f\t| %.2f\t|\n", c.name, m.cpuMicros, c.beside, ratio, m.perSecond, ms(50), ms(99), ms(99.9))
	}
	_ = w.Flush()
}

// median is the round in the middle, by CPU time.
func median(all []figures) figures {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b figures) int {
		switch {
		case a.cpuMicros < b.cpuMicros:
			return -1
		case a.cpuMicros > b.cpuMicros:
			return 1
		}
		return 0
	})
	return sorted[len(sorted)/2]
}

const warmUp = 500 * time.Millisecond

func measure(ctx context.Context, c testCase, o options) (figures, error) {
	server, err := startServer(ctx, c.server, o.rivals)
	if err != nil {
		return figures{}, err
	}
	defer server.stop()
	callers, err := c.connect(ctx, server, o.callers)
	if err != nil {
		return figures{}, err
	}
	defer callers.close()
	if _, err := drive(ctx, callers.call, warmUp, 0); err != nil {
		return figures{}, err
	}
	before, err := server.cpu()
	if err != nil {
		return figures{}, err
	}
	length := time.Duration(o.seconds * float64(time.Second))
	began := time.Now()
	latency, err := drive(ctx, callers.call, length, o.rate)
	if err != nil {
		return figures{}, err
	}
	took := time.Since(began)
	after, err := server.cpu()
	if err != nil {
		return figures{}, err
	}
	decisions := float64(latency.TotalCount()) * float64(max(1, c.decisions))
	return figures{
		cpuMicros: float64((after - before).Nanoseconds()) / 1000 / decisions,
		perSecond: decisions / took.Seconds(),
		latency:   latency,
	}, nil
}
