package relay

import (
	"testing"
	"time"
)

// A percentile is at most a fifth too large, never too small, and never more than the longest delay.
func TestDelaysKnowTheirPercentiles(t *testing.T) {
	for _, unit := range []time.Duration{time.Millisecond, 37 * time.Millisecond, time.Second, time.Minute} {
		var d delays
		for i := range 1000 {
			d.add(time.Duration(i+1) * unit)
		}
		for _, share := range []float64{0.5, 0.99, 1} {
			exact := time.Duration(share * float64(1000*unit))
			if got := d.quantile(share); got < exact || float64(got) > 1.2*float64(exact) {
				t.Errorf("%v of 1 to 1000 times %v is %v, want %v", share, unit, got, exact)
			}
		}
	}
	var d delays
	if got := d.quantile(0.99); got != 0 {
		t.Errorf("of none: %v", got)
	}
	d.add(-time.Second) // measured while a clock was set back
	if got := d.quantile(0.99); got != 0 {
		t.Errorf("of a negative one: %v", got)
	}
}
