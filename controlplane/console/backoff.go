package console

import (
	"encoding/hex"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane/access"
)

// Failed sign-ins delay further attempts from the same address and attempts with the same token. Each address and each
// token has its own count, so failures of other callers never lock a caller out. Tokens cannot be guessed; the delay
// protects the database, which every attempt reads.
const (
	failuresFree = 5 // failures without a delay
	waitFirst    = time.Second
	waitMost     = time.Minute // reached after failuresFree + 7 failures
	forgetAfter  = 15 * time.Minute
	countersMax  = 10_000
)

// backoff counts failed sign-ins. Its methods are safe for concurrent use.
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

// try counts one attempt of all keys as a failure and returns 0, or returns the time to wait. Attempts in progress
// count, so that a hundred concurrent attempts do not pass as one. Callers must call passed if the token was not the
// reason for a failure.
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

// passed takes an attempt back that succeeded, or that failed for another reason than its token.
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

// wait returns the time until the next attempt is accepted, or 0.
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

// makeRoom removes the counter that was raised least recently.
func (b *backoff) makeRoom() {
	oldest := ""
	for key, f := range b.byKey {
		if oldest == "" || f.last.Before(b.byKey[oldest].last) {
			oldest = key
		}
	}
	delete(b.byKey, oldest)
}

// tokenKey returns the key under which attempts with a token are counted. It contains no part of the secret.
func tokenKey(hash access.TokenHash) string { return "token " + hex.EncodeToString(hash[:8]) }
