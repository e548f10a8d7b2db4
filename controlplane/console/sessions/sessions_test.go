package sessions

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane/access"
)

// The number of sessions is bounded. Of the token with the most sessions, the session that was used longest ago ends.
func TestSessionsAreBounded(t *testing.T) {
	s := New(time.Now)
	clock := time.Now()
	s.now = func() time.Time { return clock }
	others := s.Begin(access.HashToken("a"))
	first := s.Begin(access.HashToken("b"))
	second := s.Begin(access.HashToken("b"))
	clock = clock.Add(time.Second)
	if _, ok := s.Find(first); !ok {
		t.Fatal("it is not there")
	}
	clock = clock.Add(time.Second)
	for range sessionsMax - 2 {
		s.Begin(access.HashToken("b"))
	}
	if _, ok := s.Find(second); ok || len(s.all) != sessionsMax {
		t.Errorf("%d sessions, the idle one is there: %v", len(s.all), ok)
	}
	if _, ok := s.Find(first); !ok {
		t.Error("one that was seen has made room")
	}
	if _, ok := s.Find(others); !ok {
		t.Error("the session of another token has made room")
	}
}

// A caller who signs in again and again, with any number of tokens, ends only sessions of these tokens.
func TestSessionsOfOneTokenEndNoOthers(t *testing.T) {
	s := New(time.Now)
	clock := time.Now()
	s.now = func() time.Time { return clock }
	people := make([]string, 20)
	for i := range people {
		people[i] = s.Begin(access.HashToken(fmt.Sprint("person", i)))
	}
	clock = clock.Add(time.Second)
	last := ""
	for i := range 2 * sessionsMax {
		last = s.Begin(access.HashToken(fmt.Sprint("hostile", i%2)))
	}
	for i, id := range people {
		if _, ok := s.Find(id); !ok {
			t.Errorf("the session of person %d has ended", i)
		}
	}
	if _, ok := s.Find(last); !ok || len(s.all) != sessionsMax {
		t.Errorf("%d sessions, the newest is there: %v", len(s.all), ok)
	}
}
