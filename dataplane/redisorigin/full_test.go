package redisorigin_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
)

// A full server has no room for costs, and keeps its relay: the relay renews its lease or takes it over, reads and
// takes off changes and heartbeats, and replaces the settings.
func TestAFullServerKeepsItsRelay(t *testing.T) {
	server := servers.RedisForTest(t)
	raw, h := rawClient(t, server.Addr()), openAt(t, server.Addr(), redisorigin.Options{})
	s := &sender{h: h}
	const cells = store.ChangesPage + 10
	var costs []store.Cost
	for i := range cells {
		costs = append(costs, store.Cost{Cell: cellNow(fmt.Sprint(i), time.Hour), Add: 1, Limit: 9})
	}
	s.send(t, costs...)
	if err := h.Heartbeat(t.Context(), heartbeat.Heartbeat{NodeID: "node", Region: "eu"}); err != nil {
		t.Fatal(err)
	}
	lease := func(holder string, ttl time.Duration) store.Lease {
		t.Helper()
		l, err := h.Lease(t.Context(), 0, holder, ttl)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	lease("first", time.Minute)
	command(t, raw, "CONFIG", "SET", "maxmemory", "1")
	if _, err := h.Send(t.Context(), s.next(store.Cost{Cell: costs[0].Cell, Add: 1})); err == nil {
		t.Fatal("the server is not full")
	}

	if l := lease("first", time.Hour); l.Holder != "first" || l.Left <= time.Minute {
		t.Errorf("renewed: %+v", l)
	}
	rows := store.SettingsRows{Version: "2", NodesLive: 3}
	if err := h.StoreSettings(t.Context(), 0, "first", rows, time.Time{}); err != nil {
		t.Errorf("settings: %v", err)
	}
	if got, err := h.Settings(t.Context(), "eu"); err != nil || got.NodesLive != 3 {
		t.Errorf("the settings are %+v, %v", got, err)
	}
	beats, err := h.Heartbeats(t.Context(), 0, 9)
	if err == nil {
		err = h.AckHeartbeats(t.Context(), 0, beats)
	}
	if err != nil || len(beats) != 1 {
		t.Errorf("%d heartbeats, %v", len(beats), err)
	}
	for left := cells; left > 0; { // the first calls leave a place to go on after
		changes, err := h.Changes(t.Context(), 0, cells/2)
		if err == nil {
			err = h.Ack(t.Context(), 0, changes.Cells)
		}
		if err != nil || len(changes.Cells) != min(left, cells/2) {
			t.Fatalf("%d of %d changes, %v", len(changes.Cells), left, err)
		}
		left -= len(changes.Cells)
	}
	if err := h.Release(t.Context(), 0, "first"); err != nil {
		t.Errorf("release: %v", err)
	}
	if l := lease("second", time.Minute); l.Holder != "second" {
		t.Errorf("taken over: %+v", l)
	}
}
