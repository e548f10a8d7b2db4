package gubernator

import (
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// exhaustedMax bounds the keys of an exhausted.
const exhaustedMax = 100_000

// exhausted holds the keys for which hits were denied when nothing was left. Of such a key gubernator's token bucket
// answers OVER_LIMIT to hits of 0, and of one that was only used up UNDER_LIMIT. The zero value holds none; its methods
// may run concurrently. Each server knows its own denials alone. With exhaustedMax keys, an arbitrary one gives way.
type exhausted struct {
	mu    sync.Mutex
	until map[exhaustedKey]time.Time // a key's window has ended by then
}

type exhaustedKey struct {
	namespace, identifier string
	duration              time.Duration
}

func keyOf(r *dataplane.Request) exhaustedKey {
	return exhaustedKey{r.Namespace, r.Identifier, r.Duration}
}

func (e *exhausted) has(r *dataplane.Request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Now().Before(e.until[keyOf(r)])
}

// note records what became of hits.
func (e *exhausted) note(r *dataplane.Request, denied bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := keyOf(r)
	if !denied {
		delete(e.until, key)
		return
	}
	if e.until == nil {
		e.until = make(map[exhaustedKey]time.Time)
	}
	if _, known := e.until[key]; !known && len(e.until) >= exhaustedMax {
		for other := range e.until {
			delete(e.until, other)
			break
		}
	}
	e.until[key] = time.Now().Add(r.Duration)
}
