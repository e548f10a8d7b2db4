package benchmarks

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

// turnOf is how many decisions a turn has: few enough that all ways see the same machine.
const turnOf = 2000

// way is a way to decide, timed by turns. ten decides about ten identifiers.
type way struct {
	name string
	ten  func(identifiers []string)
	took []time.Duration
}

// BenchmarkTurns makes Weir and go-limiter decide by turns, in the same process, so that a disturbance of the machine
// affects both. It reports the time of a decision, and its ratio to go-limiter's, of the turn that nine of ten are
// slower than, because other work on the machine only adds time. Run it with -benchtime 1000x -cpu 1.
func BenchmarkTurns(b *testing.B) {
	b.Run("uniform100k", func(b *testing.B) {
		identifiers := drawn(workload.Uniform.Identifiers, func(r *rand.Rand, n int) int { return r.IntN(n) })
		byTurns(b, identifiers, workload.Uniform.Identifiers, workload.Never)
	})
	b.Run("zipf1m", func(b *testing.B) {
		of := rand.New(rand.NewPCG(3, 4)).Perm(workload.Zipf.Identifiers)
		var z *rand.Zipf
		identifiers := drawn(workload.Zipf.Identifiers, func(r *rand.Rand, n int) int {
			if z == nil {
				z = rand.NewZipf(r, 1.1, 1, uint64(n-1))
			}
			return of[z.Uint64()]
		})
		byTurns(b, identifiers, workload.Zipf.Identifiers, workload.Never)
	})
	one := drawn(1, func(*rand.Rand, int) int { return 0 })
	b.Run("hot", func(b *testing.B) { byTurns(b, one, 1, workload.Never) })
	b.Run("denied", func(b *testing.B) { byTurns(b, one, 1, workload.Once) })
}

// drawn returns identifiers to request, each a copy of its own.
func drawn(n int, draw func(r *rand.Rand, n int) int) []string {
	r := rand.New(rand.NewPCG(1, 2))
	identifiers := make([]string, 1<<17)
	for i := range identifiers {
		identifiers[i] = workload.Identifier(draw(r, n))
	}
	return identifiers
}

func byTurns(b *testing.B, identifiers []string, known int, limit int64) {
	take, stopTake := goLimiter.New(limit)
	defer stopTake()
	l, stop := newWeir()
	defer stop()
	for i := range known {
		take(workload.Identifier(i))
		l.Allow(background, ask(workload.Identifier(i), limit))
	}
	requests, decisions, key := make([]dataplane.Request, 10), []dataplane.Decision(nil), handle(l)
	ways := []way{
		{name: "take", ten: func(identifiers []string) {
			for _, identifier := range identifiers {
				take(identifier)
			}
		}},
		{name: "allow", ten: func(identifiers []string) {
			for _, identifier := range identifiers {
				l.Allow(background, ask(identifier, limit))
			}
		}},
		{name: "batch", ten: func(identifiers []string) {
			for i, identifier := range identifiers {
				requests[i] = ask(identifier, limit)
			}
			decisions = l.AppendAllowMany(background, decisions[:0], requests).Decisions
		}},
		{name: "handle", ten: func(identifiers []string) {
			for range identifiers {
				key.Allow(background, limit, 1)
			}
		}},
	}
	at := 0
	for b.Loop() {
		for i := range ways {
			at = (at + turnOf) % (len(identifiers) - turnOf) // others than the last way had, which are in the cache
			began := time.Now()
			for n := 0; n < turnOf; n += 10 {
				ways[i].ten(identifiers[at+n : at+n+10])
			}
			ways[i].took = append(ways[i].took, time.Since(began))
		}
	}
	b.ReportMetric(0, "ns/op") // of all ways together: no useful figure
	theirs := ways[0].quiet()
	b.ReportMetric(theirs, ways[0].name+"-ns")
	for _, w := range ways[1:] {
		b.ReportMetric(w.quiet(), w.name+"-ns")
		b.ReportMetric(w.quiet()/theirs, w.name+"/take")
	}
}

// quiet returns the time of a decision in the turn that nine of ten are slower than, in nanoseconds.
func (w *way) quiet() float64 {
	slices.Sort(w.took)
	return float64(w.took[len(w.took)/10]) / turnOf
}
