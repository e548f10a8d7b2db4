// Flood sends ten million identifiers, each for the first time, through a limiter of the default size. Meanwhile it
// checks that memory stays bounded, that decisions stay quick, and that a caller who was blocked before the flood is
// blocked after it.
//
//	go run ./cmd/flood
//
// It prints its measurements, and exits with status 1 if a bound was broken.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"time"
)

func main() {
	f := flood{}
	flag.IntVar(&f.identifiers, "identifiers", 10_000_000, "distinct identifiers to send")
	flag.IntVar(&f.entriesMax, "entries-max", 300_000, "most identifiers that the limiter may hold")
	flag.Int64Var(&f.limit, "limit", 100, "limit of each identifier; each sends a cost of 1")
	flag.IntVar(&f.workers, "workers", runtime.NumCPU(), "goroutines that send")
	quantileMax := flag.Duration("p999-max", 50*time.Microsecond, "most that the 99.9th percentile of decisions may take")
	flag.Parse()

	// The bound on the heap below is for this setting, which is Go's default.
	debug.SetGCPercent(100)

	measured, err := f.run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
		os.Exit(2)
	}
	measured.print(os.Stdout)
	broken := measured.broken(bounds{heapMax: heapMaxOf(f.entriesMax), quantileMax: *quantileMax})
	for _, b := range broken {
		fmt.Println("BROKEN:", b)
	}
	if len(broken) > 0 {
		os.Exit(1)
	}
}
