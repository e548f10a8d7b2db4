// Node measures how much a decision costs a server: the CPU time of its process, whatever the load on the other side of
// the socket costs. It does so for each way into weir-node, next to servers that do nothing but answer.
//
//	go run . -seconds 3 -rounds 3           closed loop: as many calls as 64 callers make
//	go run . -rate 5000 -cases grpc         open loop: as many calls as were meant, and their latency
//	go run . -cases 'redis outage'          weir-node's Redis dies under load: what callers notice
//
// It runs in its own folder, next to the modules of the rivals that it builds: gubernator, and envoyproxy/ratelimit
// with its Redis. Each case starts its server as a process of its own. Rounds take turns among the cases, so that other
// load on the machine falls on all of them.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"slices"
	"syscall"
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
	phase   float64
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
	flag.Float64Var(&o.rate, "rate", 0,
		"calls a second for an open loop; 0 is a closed loop (Redis outage: 80 % of what it keeps up with)")
	flag.Float64Var(&o.phase, "phase", 4, "how many seconds each phase of the Redis outage takes in a round")
	flag.Parse()
	o.cases = regexp.MustCompile(*pattern)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	fail(run(ctx, o))
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "node:", err)
		os.Exit(1)
	}
}

// figures are the measurements of a case in a round.
type figures struct {
	cpuMicros float64 // of the server, a decision
	perSecond float64 // decisions
	latency   *hdrhistogram.Histogram
}

func run(ctx context.Context, o options) (err error) {
	if o.rivals, err = os.MkdirTemp("", "weir-bench-rivals-"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(o.rivals) }()
	kinds := make(map[string]bool)
	for _, c := range cases {
		kinds[c.server] = kinds[c.server] || o.cases.MatchString(c.name)
	}
	if err := buildRivals(ctx, o.rivals, kinds); err != nil {
		return err
	}
	measured := make(results)
	var withoutRedis outage
	for range o.rounds {
		for _, c := range cases {
			if !o.cases.MatchString(c.name) {
				continue
			}
			f, err := measure(ctx, c, o)
			if err != nil {
				return fmt.Errorf("measure %s: %w", c.name, err)
			}
			measured[c.name] = append(measured[c.name], f)
		}
		if o.cases.MatchString(redisOutage) {
			if err := withoutRedis.measure(ctx, o); err != nil {
				return fmt.Errorf("measure %s: %w", redisOutage, err)
			}
		}
	}
	print(o, measured)
	if len(withoutRedis.rates) > 0 {
		withoutRedis.print(os.Stdout, o)
	}
	printBars(os.Stdout, append(measured.bars(o), withoutRedis.bars()...))
	return nil
}

func print(o options, r results) {
	loop := "closed loop"
	if o.rate > 0 {
		loop = fmt.Sprintf("open loop of %v calls a second", o.rate)
	}
	fmt.Printf("%d rounds of %v s, %d callers, %s; %s, %d CPUs.\n\n", o.rounds, o.seconds, o.callers, loop,
		runtime.Version(), runtime.NumCPU())
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w,
		"| case\t| server CPU µs/decision\t| beside\t| ratio\t| decisions/s\t| p50 ms\t| p99 ms\t| p99.9 ms\t|")
	fmt.Fprintln(w, "| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t|")
	for _, c := range cases {
		all := r[c.name]
		if len(all) == 0 {
			continue
		}
		m := median(all)
		ratio := "–"
		if bare := r[c.beside]; len(bare) > 0 {
			ratio = fmt.Sprintf("%.2f", m.cpuMicros/median(bare).cpuMicros)
		}
		ms := func(q float64) float64 { return float64(m.latency.ValueAtQuantile(q)) / 1000 }
		fmt.Fprintf(w, "| %s\t| %.1f\t| %s\t| %s\t| %.0f\t| %.2f\t| %.2f\t| %.2f\t|\n", c.name, m.cpuMicros, c.beside, ratio,
			m.perSecond, ms(50), ms(99), ms(99.9))
	}
	_ = w.Flush()
}

// median returns the round in the middle, by CPU time.
func median(all []figures) figures {
	sorted := slices.SortedFunc(slices.Values(all), func(a, b figures) int { return cmp.Compare(a.cpuMicros, b.cpuMicros) })
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
