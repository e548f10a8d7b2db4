package sim

import (
	"sync"
	"time"
)

// waits are how long decisions took in virtual time, in which only calls take time. The zero value is empty. It may be
// used concurrently.
type waits struct {
	mu     sync.Mutex
	tenths delays // of a millisecond, stored as whole milliseconds
	none   int64  // number of decisions that did not wait
}

const tenthsInMs = 10

func (w *waits) add(took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if took <= 0 {
		w.none++
	}
	w.tenths.add(tenthsInMs * took)
}

// forget removes all values.
func (w *waits) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tenths, w.none = delays{}, 0
}

// WaitsMs summarizes how long decisions waited for the origin, in milliseconds, rounded down to tenths. Quantiles are
// over all decisions, including those that did not wait.
type WaitsMs struct {
	Share float64 `json:"share"` // share of decisions that waited
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
}

func (w *waits) summary() (s WaitsMs) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.tenths.known
	if all == 0 {
		return s
	}
	at := func(q float64) float64 { return float64(w.tenths.quantile(q)) / tenthsInMs }
	return WaitsMs{Share: round(float64(all-w.none)/float64(all), 4), P50: at(0.5), P99: at(0.99), P999: at(0.999),
		Max: at(1)}
}
