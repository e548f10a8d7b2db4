package sim

import (
	"math"
	"time"
)

// delays is a histogram in whole milliseconds, exact up to delayMax. The zero value is empty.
type delays struct {
	byMs    []int64
	known   int64
	unknown int64 // costs that never arrived
}

const delayMax = time.Hour

func (d *delays) add(delay time.Duration) {
	ms := int(min(max(0, delay), delayMax).Milliseconds())
	if ms >= len(d.byMs) {
		grown := make([]int64, max(ms+1, 2*len(d.byMs)))
		copy(grown, d.byMs)
		d.byMs = grown
	}
	d.byMs[ms]++
	d.known++
}

// quantile returns the smallest delay that a share q of the delays does not exceed.
func (d *delays) quantile(q float64) int64 {
	need := int64(math.Ceil(q * float64(d.known)))
	for ms, n := range d.byMs {
		if need -= n; need <= 0 {
			return int64(ms)
		}
	}
	return 0
}

// DelaysMs summarizes how long costs took to arrive in other regions.
type DelaysMs struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`

	// Samples is the number of pairs of an accepted cost and a node of another region that received it.
	Samples int64 `json:"samples"`

	// UnknownShare is the share of pairs whose node never received the cost. It can be high for counts below the floor, as
	// intended.
	UnknownShare float64 `json:"unknown_share"`
}

func (d *delays) summary() DelaysMs {
	s := DelaysMs{P50: d.quantile(0.5), P99: d.quantile(0.99), Samples: d.known}
	if all := d.known + d.unknown; all > 0 {
		s.UnknownShare = round(float64(d.unknown)/float64(all), 4)
	}
	return s
}
