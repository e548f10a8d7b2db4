package sim

import (
	"time"

	"github.com/weirhq/weir/dataplane/sim/internal/reallog"
	"github.com/weirhq/weir/shared/window"
)

// realWindows measures a key's real windows: any interval of the limit's duration, not only cells.
type realWindows struct {
	accepted reallog.Log
	worst    float64 // largest cost accepted in a real window, divided by the limit of the request that ended it

	// rival is an exact log that decides on the same requests, or nil. admits is the cost that it admitted.
	rival  *reallog.Log
	admits int64
}

// enterReal records the decision of a call that began at the given time.
func (l *ledger) enterReal(a *account, began time.Time, cost, limit int64, allowed bool) {
	if a.key.Mode == window.Estimate {
		return // estimate windows leak, and bound no real window
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r, now := &a.real, time.Now()
	if allowed && cost > 0 {
		within := r.accepted.Accept(began, now, cost, a.key.Duration)
		r.worst = max(r.worst, float64(within)/float64(max(1, limit)))
	}
	if r.rival != nil && r.rival.Within(began, a.key.Duration)+cost <= limit {
		r.rival.Accept(began, began, cost, a.key.Duration)
		r.admits += cost
	}
}
