package gubernator

import (
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// exhaustedMax bounds the number of keys.
const exhaustedMax = 100_000

// exhausted holds the keys for which hits were denied when nothing was left. gubernator's token bucket answers hits of
// 0 for such a key with OVER_LIMIT, and for a key that was merely used up with UNDER_LIMIT. The zero value is empty.
// Methods may be called concurrently. A server has only its own denials. When there are exhaustedMax keys, an arbitrary
// one is removed.
type exhausted struct {
	mu    sync.Mutex
	until map[exhaustedKey]time.Time // an upper bound of the end of the key's window
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

// note records the outcome of a request with hits.
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
