// Compare measures all limiters side by side and prints the figures of README.md: medians, ratios, and for each bar of
// Weir, whether it passes.
//
//	go run ./cmd/compare -rounds 5
//
// It runs in the folder of the benchmarks module. Each limiter is measured in a process of its own, so that none pays
// for another's heap. The limiters of a case are measured one after the other, so that a disturbance of a minute
// affects all of them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"github.com/weirhq/weir/dataplane/benchmarks"
	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

func main() {
	var p plan
	flag.IntVar(&p.rounds, "rounds", 5, "times that every limiter is measured")
	flag.IntVar(&p.repetitions, "repetitions", 3, "measurements a round and limiter (gubernator: 1)")
	flag.IntVar(&p.decisions, "decisions", 500_000, "decisions a measurement")
	cases := flag.String("cases", ".", "`regexp` of the cases to run")
	limiters := flag.String("limiters", ".", "`regexp` of the limiters to run")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, p, *cases, *limiters); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// plan is how much is measured.
type plan struct{ rounds, repetitions, decisions int }

func run(ctx context.Context, p plan, cases, limiters string) error {
	entries, err := selected(cases, limiters)
	if err != nil {
		return err
	}
	suite, err := build(ctx)
	if err != nil {
		return err
	}
	defer suite.close()
	began := time.Now()
	r, err := suite.measure(ctx, p, entries)
	if err != nil {
		return err
	}
	fmt.Printf("%d rounds of %d decisions, %d times a round; %s %s/%s, %d CPUs (%s); %v.\n\n", p.rounds, p.decisions,
		p.repetitions,
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), suite.cpu, time.Since(began).Round(time.Second))
	r.print(os.Stdout)
	return nil
}

// entry is a limiter in a case.
type entry struct {
	workload.Case
	limiter  string
	separate bool // gubernator: another binary, and slow
}

const gubernator = "gubernator"

// everything lists all entries, with the entries of a case next to each other.
func everything() (all []entry) {
	for _, c := range workload.Cases {
		for _, l := range benchmarks.Limiters(c) {
			all = append(all, entry{Case: c, limiter: l.Name})
		}
		if !c.Ours {
			all = append(all, entry{Case: c, limiter: gubernator, separate: true})
		}
	}
	return all
}

func selected(cases, limiters string) (entries []entry, err error) {
	wantCase, err := regexp.Compile(cases)
	if err != nil {
		return nil, fmt.Errorf("-cases: %w", err)
	}
	wantLimiter, err := regexp.Compile(limiters)
	if err != nil {
		return nil, fmt.Errorf("-limiters: %w", err)
	}
	for _, e := range everything() {
		if wantCase.MatchString(e.Name) && wantLimiter.MatchString(e.limiter) {
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("no limiter in any case matches -cases %q -limiters %q", cases, limiters)
	}
	return entries, nil
}
