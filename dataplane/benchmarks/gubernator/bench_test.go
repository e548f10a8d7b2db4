package gubernator

import (
	"os"
	"testing"

	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

// Fewer decisions than the others are given by default: each takes fifty times longer.
func TestMain(m *testing.M) { os.Exit(workload.Main(m, 200_000)) }

// BenchmarkAllow/CASE/gubernator: see workload.Cases.
func BenchmarkAllow(b *testing.B) {
	for _, c := range workload.Cases {
		if c.Ours {
			continue
		}
		b.Run(c.Name+"/"+limiter.Name, func(b *testing.B) { workload.Run(b, c, limiter) })
	}
}

func TestGubernatorDeniesWhatIsOverTheLimitAndNothingElse(t *testing.T) {
	if err := workload.Check(limiter); err != nil {
		t.Error(err)
	}
}
