package workload

import (
	"flag"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	// A sequence of decisions is as long as this, and is repeated if need be.
	sequenceLen = 1 << 20

	// Goroutines take turns of so many decisions: few enough that all end at the same
	// time, many enough that taking turns costs nothing.
	turn = 1 << 10

	// spread is how long threads are given to come apart: a few turns of the kernel's
	// load balancer.
	spread = 50 * time.Millisecond
)

// Units of a benchmark's own figures.
const (
	// UnitTypical is the median over turns of the time for a decision, divided by the processors. ns/op is the mean, in
	// which every moment counts that the machine gave to other processes. On one processor UnitTypical is the better
	// figure. On two, both are about the same if two were there all the time; if not, the goroutines never met, and
	// neither figure means anything.
	UnitTypical = "typical-ns/op"
	// UnitWrong is the share of wrong decisions for the case.
	UnitWrong = "%wrong"
	// UnitMemory is the live heap that an identifier adds, without its own bytes.
	UnitMemory = "B/identifier"
)

// Main is TestMain: unless the command line has other values, every benchmark times so many decisions, on one processor
// and on two.
func Main(m *testing.M, decisions int) int {
	flag.Parse()
	given := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { given[f.Name] = true })
	for name, value := range map[string]string{"test.benchtime": strconv.Itoa(decisions) + "x", "test.cpu": "1,2"} {
		if given[name] {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			panic(err) // a constant does not parse
		}
	}
	return m.Run()
}

// Run times b.N decisions of a case.
//
// It is called again for each number of processors and each repetition. It keeps a filled limiter, which takes long to
// set up, until another limiter's turn comes.
func Run(b *testing.B, c Case, l Limiter) {
	s := setup(c, l, b.N)
	b.ReportAllocs()
	typical, wrong := drive(b.ResetTimer, s.decide, s.sequence, b.N, !c.Denied)
	b.StopTimer()
	if !c.Fresh { // growth of a table happens in few turns, and must not be lost
		b.ReportMetric(typical, UnitTypical)
	}
	if wrong > 0 {
		b.ReportMetric(100*float64(wrong)/float64(b.N), UnitWrong)
	}
	if c.Identifiers >= Zipf.Identifiers {
		b.ReportMetric(s.bytesPerIdentifier, UnitMemory)
	}
	if c.Fresh {
		s.stop()
	}
}

// filled is a limiter that has the identifiers of a case, with the sequence of its decisions.
type filled struct {
	by                 string
	decide             Decide
	stop               func()
	sequence           []string
	bytesPerIdentifier float64
}

var kept = filled{stop: func() {}}

func setup(c Case, l Limiter, n int) filled {
	by := c.Name + "/" + l.Name
	if kept.by == by {
		return kept
	}
	kept.stop()
	kept = filled{stop: func() {}}
	if c.Fresh {
		s := filled{sequence: spell(known(n))}
		s.decide, s.stop = l.New(c.Limit)
		runtime.GC()
		return s
	}
	s := filled{by: by}
	before := liveHeap()
	s.decide, s.stop = l.New(c.Limit)
	fill(s.decide, c.Identifiers)
	s.bytesPerIdentifier = (liveHeap()-before)/float64(c.Identifiers) - IdentifierBytes
	length := sequenceLen
	if c.Identifiers == 1 {
		length = turn // stays in the cache
	}
	s.sequence = spell(c.draw(length, c.Identifiers))
	runtime.GC()
	kept = s
	return s
}

// fill makes a decision for each of n identifiers. Each identifier is allocated for the call, and stays in memory only
// if the limiter keeps it.
func fill(decide Decide, n int) {
	for i := range n {
		decide(Identifier(i))
	}
}

// liveHeap returns the bytes of objects that survive a collection. The first of two collections lets finalizers run,
// and the second collects their objects.
func liveHeap() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// drive makes n decisions on all processors that Go may use, in the order of the sequence, in turns. It calls begin
// just before. It returns the nanoseconds that a decision typically takes, for all processors together, and how many
// decisions were not want.
func drive(begin func(), decide Decide, sequence []string, n int, want bool) (typical float64, wrong int64) {
	var next, wrongs atomic.Int64
	var workers sync.WaitGroup
	took := make([]time.Duration, (n+turn-1)/turn)
	processors := runtime.GOMAXPROCS(0)
	together := newGathering(processors, begin)
	for range processors {
		workers.Go(func() {
			together.wait()
			for {
				from := int(next.Add(turn)) - turn
				if from >= n {
					return
				}
				at, count := from%len(sequence), min(turn, n-from)
				began := time.Now()
				if wrong := decideAll(decide, sequence[at:at+count], want); wrong > 0 {
					wrongs.Add(wrong)
				}
				took[from/turn] = time.Since(began)
			}
		})
	}
	workers.Wait()
	took = took[:max(1, n/turn)] // without a last turn that was cut short
	slices.Sort(took)
	return float64(took[len(took)/2]) / float64(min(n, turn)*processors), wrongs.Load()
}

// gathering lets goroutines start at the same time, each on a processor of its own. The kernel starts threads that wake
// each other on the same processor. It moves them apart only after they have been busy for a while, which is longer
// than some benchmarks take.
type gathering struct {
	until   time.Time
	missing atomic.Int32
	begin   func()
	begun   atomic.Bool
}

func newGathering(members int, begin func()) *gathering {
	g := &gathering{until: time.Now(), begin: begin}
	if members > 1 {
		g.until = g.until.Add(spread)
	}
	g.missing.Store(int32(members))
	return g
}

// wait keeps the processor busy until all members are here.
func (g *gathering) wait() {
	for time.Now().Before(g.until) {
	}
	if g.missing.Add(-1) == 0 {
		g.begin()
		g.begun.Store(true)
	}
	for !g.begun.Load() {
	}
}

func decideAll(decide Decide, identifiers []string, want bool) (wrong int64) {
	for _, identifier := range identifiers {
		if decide(identifier) != want {
			wrong++
		}
	}
	return wrong
}
