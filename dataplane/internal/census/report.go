package census

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/heartbeat"
)

// reportEvery is the time between two heartbeats that report keys.
const reportEvery = 15 * time.Second

// Report makes the part of a heartbeat that lists keys. The zero Report reports with the next heartbeat.
type Report struct {
	Ranking *Ranking
	// Oldest returns the leases and reservations that have been held longest, at most so many.
	Oldest func(most int, nowMs int64) []heartbeat.Held

	sentAt atomic.Int64 // clock.Steady when a heartbeat last reported keys; 0: never
}

// Due returns a document for heartbeat.Top. It is empty if the last report was sent less than reportEvery ago, or if
// the keys cannot be walked now; then the next heartbeat reports them.
func (r *Report) Due(now clock.Steady) string {
	if int64(now)-r.sentAt.Load() < reportEvery.Milliseconds() {
		return ""
	}
	of := Query{Limit: heartbeat.TopKeysMax}
	hot, ok := r.Ranking.Hottest(&of, true)
	if !ok {
		return ""
	}
	denied := r.Ranking.MostDenied(&of, hot.At.UnixMilli())
	leases := func(k Key) bool { return k.Duration == 0 }
	refused := slices.DeleteFunc(slices.Clone(denied.Keys), func(k Key) bool { return !leases(k) })
	document, err := heartbeat.Top{AtMs: hot.At.UnixMilli(), DeniedSinceMs: denied.Since.UnixMilli(),
		Hot: reported(hot.Keys), Denied: reported(slices.DeleteFunc(denied.Keys, leases)), Refused: reported(refused),
		Held: r.Oldest(heartbeat.TopKeysMax, hot.At.UnixMilli())}.Document()
	if err != nil { // cannot happen: a document of text and numbers
		return ""
	}
	return document
}

// Sent records that a document of Due was sent.
func (r *Report) Sent(now clock.Steady) { r.sentAt.Store(int64(now)) }

func reported(keys []Key) []heartbeat.TopKey {
	report := make([]heartbeat.TopKey, len(keys))
	for i, k := range keys {
		report[i] = heartbeat.TopKey{Workspace: []byte(k.Workspace), Namespace: []byte(k.Namespace),
			Identifier: []byte(k.Identifier),
			DurationMs: k.Duration.Milliseconds(), Limit: k.Limit, Count: k.Count, Regional: k.Regional, More: k.More}
	}
	return report
}
