// Package sessions has the people who have signed in to the console, and slows down attempts to sign in that fail.
// Everything is in memory, bounded, and safe for concurrent use.
package sessions

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane/access"
)

const (
	sessionsMax = 1000

	// Idle is how long a session lasts after its last request. A stream does not count.
	Idle = 2 * time.Hour

	// Lifetime is how long a session lasts after the sign-in.
	Lifetime = 12 * time.Hour
)

// Session is the server's record of a person who has signed in. It contains no secret.
type Session struct {
	Key     string // hash of the ID, which only the browser has
	Token   access.TokenHash
	Forgery string // the token against forged requests

	began, seen time.Time
}

// Sessions are the sessions that have not ended.
type Sessions struct {
	now func() time.Time

	mu  sync.Mutex
	all map[string]*Session // at most sessionsMax, by key
}

// New returns an empty list of sessions, which end by the clock.
func New(clock func() time.Time) *Sessions {
	return &Sessions{now: clock, all: make(map[string]*Session)}
}

// Begin creates a session and returns its ID, of which only a hash is stored. If there are too many sessions, the token
// with the most sessions loses the session that was used longest ago. A caller who signs in often therefore cannot end
// sessions of another token.
func (s *Sessions) Begin(token access.TokenHash) (id string) {
	id = rand.Text() + rand.Text()
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	key := sessionKey(id)
	s.all[key] = &Session{Key: key, Token: token, Forgery: rand.Text(), began: now, seen: now}
	if len(s.all) > sessionsMax {
		s.makeRoomLocked(key)
	}
	return id
}

// makeRoomLocked ends one session, but not the newest.
func (s *Sessions) makeRoomLocked(newest string) {
	of := make(map[access.TokenHash]int)
	for _, o := range s.all {
		of[o.Token]++
	}
	var gone *Session
	for _, o := range s.all {
		if o.Key != newest && (gone == nil || of[o.Token] > of[gone.Token] ||
			of[o.Token] == of[gone.Token] && o.seen.Before(gone.seen)) {
			gone = o
		}
	}
	delete(s.all, gone.Key)
}

// Find returns the session of an ID if it has not ended, and marks it as used.
func (s *Sessions) Find(id string) (Session, bool) {
	return s.get(sessionKey(id), true)
}

// Lives reports whether a session has not ended, without marking it as used.
func (s *Sessions) Lives(key string) bool {
	_, ok := s.get(key, false)
	return ok
}

func (s *Sessions) get(key string, mark bool) (Session, bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.all[key]
	if !ok {
		return Session{}, false
	}
	if found.over(now) {
		delete(s.all, key)
		return Session{}, false
	}
	if mark {
		found.seen = now
	}
	return *found, true
}

// End ends a session. A session that has ended already is not an error.
func (s *Sessions) End(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, key)
}

func (s *Sessions) expire(now time.Time) {
	for key, o := range s.all {
		if o.over(now) {
			delete(s.all, key)
		}
	}
}

func (s *Session) over(now time.Time) bool {
	return now.Sub(s.seen) >= Idle || now.Sub(s.began) >= Lifetime
}

// sessionKey returns the key under which a session is stored. It is a hash, so the time that a lookup takes reveals
// nothing that could be used as a cookie.
func sessionKey(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}
