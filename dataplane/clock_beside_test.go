package dataplane_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

// A clock was ahead and is corrected. None of the node's other state, apart from counts, must last for as long as the
// clock was ahead.

// wasAhead is how far a clock was ahead, or behind, before it is corrected.
var wasAhead = []time.Duration{24 * time.Hour, 10 * time.Minute, -24 * time.Hour}

// The list of denied keys has the denials of the last minute or two, and their start time.
func TestAClockPutRightLetsDenialsBeForgotten(t *testing.T) {
	for _, ahead := range wasAhead {
		w := newWorld(t)
		n := w.alone()
		denied := func() []string { return n.top(dataplane.TopQuery{By: dataplane.TopDenied}) }
		w.clock.step(ahead)
		n.take("a", 2, 1)
		w.clock.step(-ahead)
		n.take("b", 2, 1)
		wantTop(t, "right after", denied(), "a 1", "b 1")
		found, err := n.TopKeys(dataplane.TopQuery{By: dataplane.TopDenied, Limit: 1})
		if err != nil || !found.Since.Equal(epoch) {
			t.Errorf("%v ahead: denials since %v, want %v; %v", ahead, found.Since, epoch, err)
		}
		w.clock.advance(2 * time.Minute)
		wantTop(t, "two minutes later", denied(), []string{}...)
		n.take("c", 2, 1)
		wantTop(t, "a new denial", denied(), "c 1")
	}
}

// Heartbeats report keys every 15 s.
func TestAClockPutRightReportsKeysOnTime(t *testing.T) {
	for _, ahead := range wasAhead {
		w := newWorld(t)
		n := w.node("eu", "a")
		beat := func() (top heartbeat.Top) {
			if err := n.Heartbeat(t.Context()); err != nil {
				t.Fatal(err)
			}
			top, err := heartbeat.ReadTop([]byte(w.counts.Heartbeats()[0].Top))
			if err != nil {
				t.Fatal(err)
			}
			return top
		}
		w.clock.step(ahead)
		beat()
		w.clock.step(-ahead)
		n.take("k", 3, 50)
		w.clock.advance(14 * time.Second)
		if top := beat(); len(top.Hot) != 0 {
			t.Errorf("%v ahead, after 14 s: %+v", ahead, top)
		}
		w.clock.advance(time.Second)
		if top := beat(); len(top.Hot) != 1 || top.Hot[0].Count != 3 || top.AtMs != w.clock.Now().UnixMilli() {
			t.Errorf("%v ahead, after 15 s: %+v", ahead, top)
		}
	}
}

// Heartbeats and Health report times by the corrected clock.
func TestAClockPutRightReportsWhenThingsHappened(t *testing.T) {
	for _, ahead := range wasAhead {
		w := newWorld(t)
		n := w.node("eu", "a", func(c *dataplane.Config) { c.EntriesMax = fullCap })
		w.clock.step(ahead)
		n.loadSettings()
		n.replay()
		n.pin("api", 0, 2*fullCap)
		w.clock.step(-ahead)
		w.clock.advance(time.Minute)
		h := n.Health()
		for what, got := range map[string]time.Time{"settings": h.SettingsAt, "replay": h.ReplayedAt, "a full table": h.TableFullAt} {
			if !got.Equal(epoch) {
				t.Errorf("%v ahead: %s at %v, want %v", ahead, what, got, epoch)
			}
		}
	}
}

// versioned is a source of settings with versions, such as MySQL and Redis.
type versioned struct{ *memstore.Counts }

func (v versioned) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	rows, err := v.Counts.Settings(ctx, region)
	rows.Version = fmt.Sprint(v.SettingsVersion())
	return rows, err
}

// A reset that counted as expired is in force after the next read of settings, although the settings have not
// changed.
func TestAClockPutRightBringsAResetIntoForce(t *testing.T) {
	w := newWorld(t)
	n := w.node("eu", "a", withoutOrigin, func(c *dataplane.Config) { c.Settings = versioned{w.counts} })
	n.take("k", 10, 10)
	w.counts.SetResets(store.ResetRow{Workspace: "acme", Namespace: "api", Identifier: "k", Generation: 1,
		AtMs: w.clock.Now().UnixMilli(), ExpiresAtMs: w.clock.Now().Add(2 * time.Hour).UnixMilli()})
	w.clock.step(24 * time.Hour)
	n.loadSettings()
	w.clock.step(-24 * time.Hour)
	n.loadSettings()
	if d := n.take("k", 10, 10); !d.Allowed {
		t.Errorf("the key was reset: %+v", d)
	}
	if d := n.take("k", 1, 10); d.Allowed {
		t.Errorf("10 of 10 were counted since the reset: %+v", d)
	}
}

// The refusal of a lease is kept for 20 ms.
func TestAClockPutRightRefusesNoLeaseForLonger(t *testing.T) {
	for _, ahead := range wasAhead {
		w := newWorld(t)
		n := w.node("eu", "a")
		r := dataplane.ConcurrencyRequest{Workspace: "acme", Namespace: "jobs", Identifier: "k", Limit: 1, TTL: time.Minute}
		w.clock.step(ahead)
		token, d := n.AcquireToken(context.Background(), r, "", false)
		if !d.Allowed {
			t.Fatalf("%+v", d)
		}
		if _, d := n.AcquireToken(context.Background(), r, "", false); d.Allowed {
			t.Fatalf("a second of one: %+v", d)
		}
		w.clock.step(-ahead)
		other := w.node("eu", "b") // this node does not receive the refusal
		for _, err := range other.ReleaseTokens(context.Background(), token) {
			if err != nil {
				t.Fatal(err)
			}
		}
		w.clock.advance(20 * time.Millisecond)
		if _, d := n.AcquireToken(context.Background(), r, "", false); !d.Allowed {
			t.Errorf("%v ahead: 20 ms after a refusal, and there is room: %+v", ahead, d)
		}
	}
}
