package console

import (
	"encoding/hex"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane/access"
)

// How sign-ins that fail slow down further ones: by the address that they come from, and by
// the token that was shown. Each has its own count, so that failures of others never
// keep a caller out. Tokens cannot be guessed; what is spared is the database that each try asks.
const (
	failuresFree = 5 // without a wait
	waitFirst    = time.Second
	waitMost     = time.Minute // reached after failuresFree + 7
	forgetAfter  = 15 * time.Minute
	countersMax  = 10_000
)

// backoff counts failed sign-ins. All methods may be called at once.
type backoff struct {
	now func() time.Time

	mu    sync.Mutex
	byKey map[string]failures // at most countersMax
}

type failures struct {
	count int
	last  time.Time
}

func newBackoff() *backoff { return &backoff{now: time.Now, byKey: map[string]failures{}} }

// try takes one attempt of all keys, as one that fails, or tells how long to wait. Attempts
// that are under way count: a hundred at once are not one.
func (b *backoff) try(keys ...string) (wait time.Duration) {
	now := b.now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		wait = max(wait, b.byKey[key].wait(now))
	}
	if wait > 0 {
		return wait
	}
	for _, key := range keys {
		f := b.byKey[key]
		if now.Sub(f.last) >= forgetAfter {
			f.count = 0
		}
		if _, known := b.byKey[key]; !known && len(b.byKey) >= countersMax {
			b.makeRoom()
		}
		b.byKey[key] = failures{f.count + 1, now}
	}
	return 0
}

// passed takes back an attempt that did not fail for its token.
func (b *backoff) passed(keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		f := b.byKey[key]
		if f.count--; f.count <= 0 {
			delete(b.byKey, key)
			continue
		}
		b.byKey[key] = f
	}
}

// wait is how long the next attempt has to wait.
func (f failures) wait(now time.Time) time.Duration {
	if f.count < failuresFree || now.Sub(f.last) >= forgetAfter {
		return 0
	}
	pause := waitMost
	if doublings := f.count - failuresFree; doublings < 6 {
		pause = min(waitFirst<<doublings, waitMost)
	}
	return max(0, f.last.Add(pause).Sub(now))
}

// makeRoom forgets the counter that was raised least recently.
func (b *backoff) makeRoom() {
	oldest := ""
	for key, f := range b.byKey {
		if oldest == "" || f.last.Before(b.byKey[oldest].last) {
			oldest = key
		}
	}
	delete(b.byKey, oldest)
}

// tokenKey is what attempts with one token are counted by: no part of the secret.
func tokenKey(hash access.TokenHash) string { return "token " + hex.EncodeToString(hash[:8]) }
