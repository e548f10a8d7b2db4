package dataplane

import (
	"slices"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// reportEvery is how often a heartbeat tells of keys.
const reportEvery = 15 * time.Second

// topReport is a document of heartbeat.Top; empty when the keys cannot be walked now: the
// next heartbeat will tell of them.
func (l *Limiter) topReport() string {
	hot, err := l.hottest(&TopQuery{Limit: heartbeat.TopKeysMax}, true)
	if err != nil {
		return ""
	}
	denied := l.denials(&TopQuery{Limit: heartbeat.TopKeysMax}, hot.At.UnixMilli())
	leases := func(k TopKey) bool { return k.Duration == 0 }
	refused := slices.DeleteFunc(slices.Clone(denied.Keys), func(k TopKey) bool { return !leases(k) })
	document, err := heartbeat.Top{AtMs: hot.At.UnixMilli(), DeniedSinceMs: denied.Since.UnixMilli(),
		Hot: reported(hot.Keys), Denied: reported(slices.DeleteFunc(denied.Keys, leases)), Refused: reported(refused),
		Held: l.permits.Oldest(heartbeat.TopKeysMax, hot.At.UnixMilli())}.Document()
	if err != nil { // of text and numbers: cannot be
		return ""
	}
	return document
}

func reported(keys []TopKey) []heartbeat.TopKey {
	report := make([]heartbeat.TopKey, len(keys))
	for i, k := range keys {
		report[i] = heartbeat.TopKey{Workspace: []byte(k.Workspace), Namespace: []byte(k.Namespace),
			Identifier: []byte(k.Identifier),
			DurationMs: k.Duration.Milliseconds(), Limit: k.Limit, Count: k.Count, Regional: k.Regional, More: k.More}
	}
	return report
}
