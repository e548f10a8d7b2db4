package held

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

var (
	errAway    = errors.New("away")
	errBusy    = errors.New("busy")
	errStopped = errors.New("stopped")
)

// node is a node's reservations at an origin, and its connection to the origin.
type node struct {
	Reservations
	holds, notes atomic.Int64                  // calls about holds, and about records alone
	before       func(c *store.HoldCall) error // fails calls, which are then not applied
	after        func(c *store.HoldCall) error // loses answers
}

// way is a node's connection to an origin.
type way struct {
	Origin
	of *node
}

// Hold implements store.Reservations.
func (w way) Hold(ctx context.Context, c store.HoldCall) (store.HoldReply, error) {
	if w.of.before != nil {
		if err := w.of.before(&c); err != nil {
			return store.HoldReply{}, err
		}
	}
	reply, err := w.Origin.Hold(ctx, c)
	if err == nil && w.of.after != nil {
		err = w.of.after(&c)
	}
	return reply, err
}

// nodeOf returns a node that makes each call once.
func nodeOf(origin Origin) *node {
	n := &node{}
	n.Origin = way{origin, n}
	n.NowMs = func() int64 { return time.Now().UnixMilli() }
	n.Heard = func(int, []store.Hold, []store.Total) {}
	n.Go = func(f func()) bool {
		go f()
		return true
	}
	n.Stopped, n.Busy = errStopped, errBusy
	n.NotBegun = func(int) func(error) error { return isBusy }
	n.Call = func(ctx context.Context, _ int, what What, _ int, call func(context.Context) (store.Reply, error)) error {
		if what == Hold {
			n.holds.Add(1)
		} else {
			n.notes.Add(1)
		}
		_, err := call(context.WithoutCancel(ctx))
		return err
	}
	return n
}

// isBusy returns the error of a call that did not begin in time, at an origin that answers other calls.
func isBusy(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errBusy
	}
	return err
}

// awayFrom fails calls to a group.
func (n *node) awayFrom(group int) {
	n.before = func(c *store.HoldCall) error {
		if n.Origin.GroupOf(&c.Group) == group {
			return errAway
		}
		return nil
	}
}

// places runs f with an origin of a single group, with an origin of two shards, and with a Cluster.
func places(t *testing.T, f func(t *testing.T, origin Origin, servers *memstore.Origin)) {
	for name, shards := range map[string]int{"one group": 1, "two shards": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				origin := memstore.NewOrigin(memstore.OriginOptions{Shards: shards})
				f(t, origin, origin)
			})
		})
	}
	t.Run("cluster", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			cluster := memstore.NewCluster(memstore.OriginOptions{Shards: 16})
			f(t, cluster, cluster.Origin)
		})
	})
}

type keyCost struct {
	key  string
	cost int64
}

const hour = time.Hour

// itemOf returns an item of a key of 1000 an hour.
func itemOf(key string, cost int64) Item {
	return Item{Workspace: "w", Namespace: "n", Identifier: key, DurationMs: hour.Milliseconds(), Limit: 1000, Held: cost,
		Sequence: window.Sequence(time.Now().UnixMilli(), hour.Milliseconds())}
}

// recordOf returns a record that reserves costs for a minute.
func recordOf(costs ...keyCost) *Record {
	nowMs := time.Now().UnixMilli()
	r := &Record{Returned: true, MadeMs: nowMs, EndsMs: nowMs + 60_000, MadeBy: rand.Uint64() | 1}
	for _, c := range costs {
		r.Items = append(r.Items, itemOf(c.key, c.cost))
	}
	return r
}

// tries requests a reservation. asked reports whether the origin has judged it.
func (n *node) tries(ctx context.Context, id string, r *Record) (ok, asked bool, err error) {
	_, ok, err = n.Reserve(ctx, id, r, func(answers []store.HoldAnswer, was bool) (bool, error) {
		asked = was
		for i := range answers {
			if !answers[i].Fits {
				return false, nil
			}
		}
		return true, nil
	})
	return ok, asked, err
}

// reserves makes a reservation.
func (n *node) reserves(t *testing.T, id string, costs ...keyCost) {
	t.Helper()
	if ok, _, err := n.tries(t.Context(), id, recordOf(costs...)); !ok || err != nil {
		t.Fatalf("%s is not reserved: %v", id, err)
	}
}

// changes changes a reservation that is open.
func (n *node) changes(t *testing.T, id string, by Change) {
	t.Helper()
	if _, late, err := n.Change(t.Context(), id, by); late || err != nil {
		t.Fatalf("%s is not changed: late %v, %v", id, late, err)
	}
}

// sends waits a second and calls Send.
func (n *node) sends(t *testing.T) {
	t.Helper()
	time.Sleep(time.Second)
	if err := n.Send(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// counts returns the used cost and the total of a key, for holds and for single requests.
func counts(t *testing.T, origin Origin, key string) (used, total int64) {
	t.Helper()
	cell := cellOf(key)
	reply, err := origin.Hold(t.Context(), store.HoldCall{Group: cell.Key, Stream: 99, Holds: []store.Hold{{Cell: cell,
		Before: cell, Owner: "look", As: store.HoldNew, Amount: 1, TTL: time.Second}}})
	if err != nil || !reply.Refused {
		t.Fatal(reply, err)
	}
	return reply.Answers[0].Used, reply.Answers[0].Total.Region
}

func cellOf(key string) window.Cell {
	it := itemOf(key, 0)
	return it.Cell()
}

func wantCounts(t *testing.T, origin Origin, key string, used, total int64) {
	t.Helper()
	if gotUsed, gotTotal := counts(t, origin, key); gotUsed != used || gotTotal != total {
		t.Errorf("%s counts %d for holds and %d for others, want %d and %d", key, gotUsed, gotTotal, used, total)
	}
}

// stored returns the origin's record under an ID, with a call of a node that keeps nothing.
func stored(t *testing.T, origin Origin, id string) store.RecordAnswer {
	t.Helper()
	reply, err := origin.Hold(t.Context(), store.HoldCall{Group: store.RecordKey(id), Stream: 98,
		Record: &store.Record{ID: id}})
	if err != nil {
		t.Fatal(err)
	}
	reply.Record.Changed = false
	return reply.Record
}

// keyIn returns a key in a group, and keyOut a key outside of it, if there are several groups.
func keyIn(origin Origin, group int) string {
	return keyWhere(func(key *window.Key) bool { return origin.GroupOf(key) == group })
}

func keyOut(origin Origin, group int) string {
	return keyWhere(func(key *window.Key) bool { return origin.GroupOf(key) != group })
}

func keyWhere(fits func(key *window.Key) bool) string {
	for i := range 1000 {
		key := fmt.Sprint("k", i)
		if cell := cellOf(key); fits(&cell.Key) {
			return key
		}
	}
	return "any"
}

// groupOf returns the group of an ID's record.
func groupOf(origin Origin, id string) int {
	key := store.RecordKey(id)
	return origin.GroupOf(&key)
}
