package console

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane/access"
)

const (
	sessionsMax     = 1000
	sessionIdle     = 2 * time.Hour  // since the last request; a stream does not count
	sessionLifetime = 12 * time.Hour // since the sign-in

	cookieSecure   = "__Host-weir" // browsers accept the name only over TLS and for this host
	cookieLoopback = "weir_session"
)

// session is the server's record of a person who has signed in. It contains no secret.
type session struct {
	key     string // hash of the ID, which only the browser has
	token   access.TokenHash
	forgery string
	began   time.Time
	seen    time.Time
}

// sessions are the sessions that have not ended. Its methods are safe for concurrent use.
type sessions struct {
	now func() time.Time

	mu  sync.Mutex
	all map[string]*session // at most sessionsMax, by key
}

func newSessions() *sessions {
	return &sessions{now: time.Now, all: make(map[string]*session)}
}

// begin creates a session and returns its ID, of which only a hash is stored. If there are too many sessions, the token
// with the most sessions loses the session that was used longest ago. A caller who signs in often therefore cannot end
// sessions of another token.
func (s *sessions) begin(token access.TokenHash) (id string) {
	id = random() + random()
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	key := sessionKey(id)
	s.all[key] = &session{key: key, token: token, forgery: random(), began: now, seen: now}
	if len(s.all) > sessionsMax {
		s.makeRoomLocked(key)
	}
	return id
}

// makeRoomLocked ends one session, but not the newest.
func (s *sessions) makeRoomLocked(newest string) {
	of := make(map[access.TokenHash]int)
	for _, o := range s.all {
		of[o.token]++
	}
	var gone *session
	for _, o := range s.all {
		if o.key != newest && (gone == nil || of[o.token] > of[gone.token] ||
			of[o.token] == of[gone.token] && o.seen.Before(gone.seen)) {
			gone = o
		}
	}
	delete(s.all, gone.key)
}

// find returns the session of an ID if it has not ended, and marks it as used.
func (s *sessions) find(id string) (session, bool) {
	return s.get(sessionKey(id), true)
}

// lives reports whether a session has not ended, without marking it as used.
func (s *sessions) lives(key string) bool {
	_, ok := s.get(key, false)
	return ok
}

func (s *sessions) get(key string, mark bool) (session, bool) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.all[key]
	if !ok {
		return session{}, false
	}
	if found.over(now) {
		delete(s.all, key)
		return session{}, false
	}
	if mark {
		found.seen = now
	}
	return *found, true
}

func (s *sessions) end(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, key)
}

func (s *sessions) expire(now time.Time) {
	for key, o := range s.all {
		if o.over(now) {
			delete(s.all, key)
		}
	}
}

func (s *session) over(now time.Time) bool {
	return now.Sub(s.seen) >= sessionIdle || now.Sub(s.began) >= sessionLifetime
}

// sessionKey returns the key under which a session is stored. It is a hash, so the time that a lookup takes reveals
// nothing that could be used as a cookie.
func sessionKey(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

// cookie returns the cookie for a session's ID. An empty ID removes the cookie from the browser.
func (c *Console) cookie(r *http.Request, id string) *http.Cookie {
	made := &http.Cookie{Name: c.cookieName(r), Value: id, Path: "/", HttpOnly: true, Secure: c.overTLS(r),
		SameSite: http.SameSiteStrictMode, MaxAge: int(sessionLifetime.Seconds())}
	if id == "" {
		made.MaxAge = -1
	}
	return made
}

// cookieName returns the name that browsers accept only over TLS if the request uses TLS.
func (c *Console) cookieName(r *http.Request) string {
	if c.overTLS(r) {
		return cookieSecure
	}
	return cookieLoopback
}

func (c *Console) cookieValue(r *http.Request) string {
	found, err := r.Cookie(c.cookieName(r))
	if err != nil {
		return ""
	}
	return found.Value
}
