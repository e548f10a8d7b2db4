package queue

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// entryOf makes the entry of a key.
func entryOf(table *cell.Table, namespace string, n int) *cell.Entry {
	key := window.Key{Workspace: "acme", Namespace: namespace, Identifier: fmt.Sprint(n), Duration: time.Minute}
	id := table.IdentityOfKey(&key, nil)
	e, _ := table.Add(&id, &key, nil, false, table.Horizon(false), 1, time.Minute.Milliseconds())
	return e
}

func newTable() *cell.Table { return cell.NewTable(10_000, 1000, clock.New(time.Now), true) }

// However many keys of a namespace are flushed, claimed or read, another namespace's key goes with the next call.
func TestAFloodOfOneNamespaceWaitsForItself(t *testing.T) {
	table := newTable()
	victim := entryOf(table, "victim", 0)
	flushes, claims, reads := NewFlushes(), &GroupCommit[*cell.Claim]{}, &Reads{}
	read := func(e *cell.Entry) { reads.Add(Read{Entry: e, Flight: cell.NewFlight(), Since: 1}) }
	for n := range 5000 {
		e := entryOf(table, "flood", n)
		flushes.Add(e)
		claims.Enter(e.Group(), &cell.Claim{Entry: e})
		read(e)
	}
	reads.Begin(0)
	flushes.Add(victim)
	claims.Enter(victim.Group(), &cell.Claim{Entry: victim})
	read(victim)
	const call = 2
	found := map[string]bool{}
	for _, e := range flushes.Take(call) {
		found["flushed"] = found["flushed"] || e == victim
	}
	for _, c := range claims.Take(call, func(*cell.Claim) int { return 1 }) {
		found["claimed"] = found["claimed"] || c.Entry == victim
	}
	for _, r := range reads.Begin(0) {
		found["read"] = found["read"] || r.Entry == victim
	}
	for _, how := range []string{"flushed", "claimed", "read"} {
		if !found[how] {
			t.Errorf("the other namespace's key is not %s with the next call", how)
		}
	}
}

// At most ReadCallsMax calls read at once. A read that has waited until its callers gave up ends without a call. Calls
// of a busy shard are short while two namespaces read from it, and long otherwise.
func TestReadsThatNobodyWaitsForAreNotMade(t *testing.T) {
	for _, of := range []struct {
		name  string
		other bool
		next  int
	}{{"one namespace", false, ReadKeysAlone}, {"two namespaces", true, ReadKeysMax}} {
		t.Run(of.name, func(t *testing.T) {
			const reads = 1000
			q, table, last := &Reads{}, newTable(), cell.NewFlight()
			if of.other {
				q.Add(Read{Entry: entryOf(table, "other", 0), Flight: cell.NewFlight(), Since: 1000})
			}
			for n := range reads {
				last = cell.NewFlight()
				q.Add(Read{Entry: entryOf(table, "flood", n), Flight: last, Since: 1000})
			}
			if n := len(q.Begin(1000)); n != ReadKeysAlone {
				t.Errorf("the first call reads %d keys, want %d", n, ReadKeysAlone)
			}
			for range ReadCallsMax - 1 {
				if n := len(q.Begin(1000)); n != of.next {
					t.Errorf("another call reads %d keys, want %d", n, of.next)
				}
			}
			if q.Begin(1000) != nil {
				t.Errorf("more than %d calls", ReadCallsMax)
			}
			if n := len(q.Next(1049, 50*time.Millisecond)); n != of.next {
				t.Errorf("the next call reads %d keys, want %d", n, of.next)
			}
			if q.Next(1050, 50*time.Millisecond) != nil || q.Len() != 0 {
				t.Errorf("%d reads wait that nobody waits for", q.Len())
			}
			if !last.Failed() {
				t.Error("a read that was not made has not ended")
			}
		})
	}
}
