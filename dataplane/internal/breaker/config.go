package breaker

import (
	"cmp"
	"fmt"
	"time"
)

const (
	ratioDefault    = 0.5
	callsMinDefault = 5
	callsMinMax     = 1_000_000
	intervalDefault = 10 * time.Second
	intervalMin     = 100 * time.Millisecond
	openForDefault  = time.Second
	openForMin      = 10 * time.Millisecond
	timeMax         = time.Hour
	halfOpenDefault = 3
	halfOpenMax     = 1_000
)

// WithDefaults returns b with defaults for fields that are 0. The error names the field of Config.Breaker that is out
// of bounds.
func (b Config) WithDefaults() (Config, error) {
	switch {
	case !(b.FailureRatio >= 0 && b.FailureRatio <= 1): // NaN too
		return b, fmt.Errorf("Config.Breaker.FailureRatio is %v (more than 0, at most 1; 0 for %v)",
			b.FailureRatio, ratioDefault)
	case b.CallsMin < 0 || b.CallsMin > callsMinMax:
		return b, fmt.Errorf("Config.Breaker.CallsMin is %d (1 to %d, 0 for %d)", b.CallsMin,
			callsMinMax, callsMinDefault)
	case b.HalfOpenCalls < 0 || b.HalfOpenCalls > halfOpenMax:
		return b, fmt.Errorf("Config.Breaker.HalfOpenCalls is %d (1 to %d, 0 for %d)", b.HalfOpenCalls,
			halfOpenMax, halfOpenDefault)
	}
	for _, d := range []struct {
		name       string
		value      *time.Duration
		least, def time.Duration
	}{
		{"Interval", &b.Interval, intervalMin, intervalDefault},
		{"OpenFor", &b.OpenFor, openForMin, openForDefault},
	} {
		if *d.value = cmp.Or(*d.value, d.def); *d.value < d.least || *d.value > timeMax {
			return b, fmt.Errorf("Config.Breaker.%s is %v (%v to %v, 0 for %v)", d.name, *d.value, d.least,
				timeMax, d.def)
		}
	}
	b.FailureRatio = cmp.Or(b.FailureRatio, ratioDefault)
	b.CallsMin = cmp.Or(b.CallsMin, callsMinDefault)
	b.HalfOpenCalls = cmp.Or(b.HalfOpenCalls, halfOpenDefault)
	return b, nil
}
