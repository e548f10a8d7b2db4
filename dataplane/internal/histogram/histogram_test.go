package histogram_test

import (
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/histogram"
)

// A histogram counts as the client of Prometheus does.
func TestAHistogramCountsAsPrometheusDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := rapid.SliceOfNDistinct(rapid.Float64Range(-10, 10), 1, 8, rapid.ID).Draw(t, "bounds")
		slices.Sort(bounds)
		h, model := histogram.New(bounds...), prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: bounds})
		for _, v := range rapid.SliceOf(rapid.OneOf(rapid.Float64Range(-20, 20), rapid.SampledFrom(bounds))).Draw(t, "values") {
			h.Observe(v)
			model.Observe(v)
		}
		var m dto.Metric
		if err := model.Write(&m); err != nil {
			t.Fatal(err)
		}
		want := []uint64{}
		for _, b := range m.GetHistogram().GetBucket() {
			want = append(want, b.GetCumulativeCount())
		}
		want = append(want, m.GetHistogram().GetSampleCount())
		got := h.Snapshot()
		if !slices.Equal(got.Counts, want) || got.Sum != m.GetHistogram().GetSampleSum() {
			t.Fatalf("counts %v and sum %v, want %v and %v", got.Counts, got.Sum, want, m.GetHistogram().GetSampleSum())
		}
	})
}

func TestNoConcurrentValueIsLost(t *testing.T) {
	h := histogram.New(1, 2)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1_000 {
				h.Observe(2)
			}
		})
	}
	all.Wait()
	if got := h.Snapshot(); !slices.Equal(got.Counts, []uint64{0, 8_000, 8_000}) || got.Sum != 16_000 {
		t.Errorf("counts %v and sum %v", got.Counts, got.Sum)
	}
}

func TestExponentialBounds(t *testing.T) {
	want := prometheus.ExponentialBuckets(100e-6, 2.5, 11)
	if got := histogram.Exponential(100e-6, 2.5, 11); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
