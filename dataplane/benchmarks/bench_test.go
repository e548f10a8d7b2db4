package benchmarks

import (
	"os"
	"testing"

	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

func TestMain(m *testing.M) { os.Exit(workload.Main(m, 1_000_000)) }

// BenchmarkAllow/CASE/LIMITER: see workload.Cases.
func BenchmarkAllow(b *testing.B) {
	for _, c := range workload.Cases {
		for _, l := range Limiters(c) {
			b.Run(c.Name+"/"+l.Name, func(b *testing.B) { workload.Run(b, c, l) })
		}
	}
}

// All compared limiters must do the same.
func TestLimitersDenyWhatIsOverTheLimitAndNothingElse(t *testing.T) {
	for _, l := range Limiters(workload.Hot) {
		if err := workload.Check(l); err != nil {
			t.Error(err)
		}
	}
}
