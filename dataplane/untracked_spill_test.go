package dataplane

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const spillSeq = int64(1000)

func spillMs() int64 { return window.Start(spillSeq, time.Minute.Milliseconds()) }

// untrackedLimiter is a limiter with an origin, and an untracked key of its in the current cell.
func untrackedLimiter(t *testing.T, change ...func(*Config)) (*Limiter, *cell.Entry) {
	t.Helper()
	now := time.UnixMilli(spillMs())
	cfg := Config{Region: "eu", NodeID: "a", Clock: func() time.Time { return now },
		Origin: memstore.NewOrigin(memstore.OriginOptions{Clock: func() time.Time { return now }})}
	for _, f := range change {
		f(&cfg)
	}
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	id := l.table.IdentityOfKey(&key, nil)
	e, _ := l.table.AddUntracked(&id, &key, nil, l.table.Horizon(false), spillSeq)
	return l, e
}

// The answer to an untracked key's cost tells of others', and a short one is a failure: what it leaves out is in the
// overflow.
func TestTheAnswerToAnUntrackedKeysCostIsMerged(t *testing.T) {
	l, e := untrackedLimiter(t)
	sh := l.shards[0]
	// another node's
	_, _ = l.cfg.Origin.Send(t.Context(), store.Chunk{Stream: 1, Number: 1, Costs: []store.Cost{{Cell: e.Cell(spillSeq), Add: 4}}})
	e.Charge(spillSeq, 5, 100)
	l.sendUntracked(sh, []outgoing{{e, spillSeq, 5}})
	if got := e.LookAt(spillSeq).Counted; got != 9 {
		t.Errorf("%d are counted of its own 5 and others' 4", got)
	}
	l.cfg.Origin = silent{l.cfg.Origin}
	e.Charge(spillSeq, 2, 100)
	l.sendUntracked(sh, []outgoing{{e, spillSeq, 2}})
	if got := l.table.SpilledCost(e, spillSeq); got != 2 {
		t.Errorf("the overflow has %d of the 2 that were not answered", got)
	}
}

// silent answers no chunk.
type silent struct{ store.Origin }

func (silent) Send(context.Context, store.Chunk) (store.Reply, error) { return store.Reply{}, nil }

// What was claimed in a cell that has made way before the batch is decided is credit there.
func TestAClaimOfTheCellBeforeBecomesCredit(t *testing.T) {
	_, e := untrackedLimiter(t)
	e.Charge(spillSeq, 4, 100)
	it := item{entry: e, claimed: cell.Claimed{Sequence: spillSeq, Cost: 4}}
	var next cell.Verdict
	later := cell.NewTable(1, 0, clock.New(nil), true).Horizon(false)
	e.Judge(&next, later, spillMs()+time.Minute.Milliseconds(), time.Minute.Milliseconds(), 100, 0, false)
	it.keepClaim(cell.NewClaim(e, &next, 100, 2, false, false))
	it.keepClaim(cell.NewClaim(e, &next, 100, 1, false, false))
	if got := e.LookAt(spillSeq).Credit; got != 4 || it.claimed != (cell.Claimed{Sequence: spillSeq + 1, Cost: 3}) {
		t.Errorf("credit %d; claimed %+v", got, it.claimed)
	}
}

// What is spilled is in the overflow, is counted as dropped, and is settled; nothing leaves no trace.
func TestASpillIsInTheOverflow(t *testing.T) {
	l, e := untrackedLimiter(t)
	l.spill(e, spillSeq, 0)
	if got := l.Health().DroppedCost; got != 0 {
		t.Errorf("nothing is spilled, and %d are counted as dropped", got)
	}
	e.Charge(spillSeq, 5, 100)
	l.spill(e, spillSeq, 5)
	if got := l.table.SpilledCost(e, spillSeq); got != 5 {
		t.Errorf("the overflow has %d of 5", got)
	}
	if got := l.Health().DroppedCost; got != 5 {
		t.Errorf("%d are counted as dropped", got)
	}
	if got := e.Unsent(); got != 0 {
		t.Errorf("%d are to be sent, which nobody does", got)
	}
}

// "The shard is there, whatever it thinks of some cells": one cost of untracked keys that it refuses opens no breaker.
func TestAnOriginThatTakesSomeCostsOfUntrackedKeysIsThere(t *testing.T) {
	l, e := untrackedLimiter(t, func(c *Config) { c.Breaker = Breaker{CallsMin: 1, FailureRatio: 0.0001} })
	l.cfg.Origin = partial{l.cfg.Origin}
	e.Charge(spillSeq, 5, 100)
	l.sendUntracked(l.shards[0], []outgoing{{e, spillSeq, 2}, {e, spillSeq, 3}})
	if _, ok := l.shards[0].asks.Begin(); !ok {
		t.Error("the breaker is open")
	}
	if got := l.table.SpilledCost(e, spillSeq); got != 3 {
		t.Errorf("the overflow has %d, want the 3 that were refused", got)
	}
}

// partial takes the first cost only.
type partial struct{ store.Origin }

func (o partial) Send(ctx context.Context, c store.Chunk) (store.Reply, error) {
	c.Costs = c.Costs[:1]
	reply, err := o.Origin.Send(ctx, c)
	reply.Totals = append(reply.Totals, store.Total{Err: errShortAnswer})
	return reply, err
}

// A key without room that is decided without a pause keeps its untracked key. If the clock is put right, the key still
// goes by the clock, and what was counted still counts.
func TestAClockPutRightLocksNoUntrackedKeyOut(t *testing.T) {
	for _, origin := range []bool{false, true} {
		var ms atomic.Int64
		ms.Store(spillMs() + 24*time.Hour.Milliseconds())
		wall := func() time.Time { return time.UnixMilli(ms.Load()) }
		cfg := Config{Region: "eu", NodeID: "a", Clock: wall}
		if origin {
			cfg.Origin = memstore.NewOrigin(memstore.OriginOptions{Clock: wall})
		}
		l, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
		id := l.table.IdentityOfKey(&key, nil)
		l.table.AddUntracked(&id, &key, nil, l.table.Horizon(false), window.Sequence(l.nowMs(), 60_000)) // a use that does not end
		r := Request{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute, Limit: 10, Cost: 9}
		if d := l.Allow(t.Context(), r); !d.Allowed {
			t.Fatalf("origin %v: %+v", origin, d)
		}
		ms.Store(spillMs())
		r.Cost = 2
		for how, d := range map[string]Decision{"single": l.Allow(t.Context(), r),
			"batch": l.AllowMany(t.Context(), []Request{r}).Decisions[0]} {
			if d.Allowed || d.ResetAt.After(wall().Add(time.Minute)) {
				t.Errorf("origin %v, %s: 9 of 10 were counted a moment ago: %+v", origin, how, d)
			}
		}
		ms.Add(2 * time.Minute.Milliseconds())
		if d := l.Allow(t.Context(), r); !d.Allowed {
			t.Errorf("origin %v: two windows later: %+v", origin, d)
		}
		l.AwaitCalls()
	}
}
