package sessions

import (
	"encoding/hex"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane/access"
)

// FailuresFree is the number of failures without a delay.
const FailuresFree = 5

const (
	waitFirst   = time.Second
	waitMost    = time.Minute // reached after FailuresFree + 7 failures
	forgetAfter = 15 * time.Minute
	countersMax = 10_000
)

// Backoff delays attempts after failed sign-ins from the same address or with the same token. Each address and each
// token has its own count, so failures of other callers never lock a caller out. Tokens cannot be guessed; the delay
// protects the database, which every attempt reads.
type Backoff struct {
	now func() time.Time

	mu    sync.Mutex
	byKey map[string]failures // at most countersMax
}

type failures struct {
	count int
	last  time.Time
}

// NewBackoff returns a Backoff without failures, which forgets them by the clock.
func NewBackoff(clock func() time.Time) *Backoff {
	return &Backoff{now: clock, byKey: map[string]failures{}}
}

// Try counts one attempt of all keys as a failure and returns 0, or returns the time to wait. Attempts in progress
// count, so that a hundred concurrent attempts do not pass as one. Callers must call Passed if the token was not the
// reason for a failure.
func (b *Backoff) Try(keys ...string) (wait time.Duration) {
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

// Passed takes an attempt back that succeeded, or that failed for another reason than its token.
func (b *Backoff) Passed(keys ...string) {
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
	if f.count < FailuresFree || now.Sub(f.last) >= forgetAfter {
		return 0
	}
	pause := waitMost
	if doublings := f.count - FailuresFree; doublings < 6 {
		pause = min(waitFirst<<doublings, waitMost)
	}
	return max(0, f.last.Add(pause).Sub(now))
}

// makeRoom removes the counter that was raised least recently.
func (b *Backoff) makeRoom() {
	oldest := ""
	for key, f := range b.byKey {
		if oldest == "" || f.last.Before(b.byKey[oldest].last) {
			oldest = key
		}
	}
	delete(b.byKey, oldest)
}

// TokenKey returns the key under which attempts with a token are counted. It contains no part of the secret.
func TokenKey(hash access.TokenHash) string { return "token " + hex.EncodeToString(hash[:8]) }
