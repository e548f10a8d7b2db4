package memstore_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

func minuteCell(identifier string) window.Cell {
	return window.Cell{
		Key:      window.Key{Workspace: "w", Namespace: "n", Identifier: identifier, Duration: time.Minute},
		Sequence: window.Sequence(time.Now().UnixMilli(), time.Minute.Milliseconds()),
	}
}

var errDown = errors.New("down")

// calls is every method of both stores, as one error each.
func calls(o *memstore.Origin, c *memstore.Counts) map[memstore.Op]func(context.Context) error {
	cell := minuteCell("x")
	return map[memstore.Op]func(context.Context) error{
		memstore.OpRead: func(ctx context.Context) error { _, err := o.Read(ctx, []window.Cell{cell}); return err },
		memstore.OpAdd: func(ctx context.Context) error {
			return o.Add(ctx, []store.Add{{Cell: cell, Cost: 1}})[0].Err
		},
		memstore.OpClaim: func(ctx context.Context) error {
			return o.Claim(ctx, []store.Claim{{Cell: cell, Cost: 1, AtMost: 1}})[0].Err
		},
		memstore.OpRaise: func(ctx context.Context) error { return o.Raise(ctx, []store.Add{{Cell: cell, Cost: 1}}) },
		memstore.OpPublish: func(ctx context.Context) error {
			return c.Publish(ctx, "eu", []store.Count{{Cell: cell, Count: 1}})
		},
		memstore.OpImport: func(ctx context.Context) error {
			_, err := c.Import(ctx, "eu", 0, 0, func(store.Imported) {})
			return err
		},
		memstore.OpSettings:  func(ctx context.Context) error { _, err := c.Settings(ctx, "eu"); return err },
		memstore.OpHeartbeat: func(ctx context.Context) error { return c.Heartbeat(ctx, heartbeat.Beat{NodeID: "n"}) },
	}
}

func TestFailFailsEveryCallUntilItIsTakenBack(t *testing.T) {
	for op := range calls(nil, nil) {
		o, c := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
		call := calls(o, c)[op]
		o.Faults.Fail(errDown)
		c.Faults.Fail(errDown)
		if err := call(t.Context()); !errors.Is(err, errDown) || errors.Is(err, store.ErrMaybeApplied) {
			t.Errorf("%s while down: %v", op, err)
		}
		if len(o.Rows()) != 0 || len(c.Rows()) != 0 || len(c.Beats()) != 0 {
			t.Errorf("%s while down was applied", op)
		}
		o.Faults.Fail(nil)
		c.Faults.Fail(nil)
		if err := call(t.Context()); err != nil {
			t.Errorf("%s after it: %v", op, err)
		}
		o.Wipe()
		c.Wipe()
		if len(o.Rows()) != 0 || len(c.Rows()) != 0 || len(c.Beats()) != 0 != (op == memstore.OpHeartbeat) {
			t.Errorf("%s: a wipe forgets counts and nothing else", op)
		}
	}
}

func TestHookSeesEveryCallAndChoosesWhichFail(t *testing.T) {
	o, c := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
	var seen []memstore.Op
	hook := func(op memstore.Op) error {
		seen = append(seen, op)
		if op == memstore.OpImport {
			return errDown
		}
		return nil
	}
	o.Faults.Hook(hook)
	c.Faults.Hook(hook)
	for op, call := range calls(o, c) {
		err := call(t.Context())
		if want := op == memstore.OpImport; errors.Is(err, errDown) != want {
			t.Errorf("%s: %v", op, err)
		}
		if len(seen) == 0 || seen[len(seen)-1] != op {
			t.Errorf("the hook saw %v instead of %s", seen, op)
		}
	}
}

func TestLostRepliesAreAppliedAndSaidToBeMaybe(t *testing.T) {
	o, c := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
	o.Faults.LoseReplies(true)
	c.Faults.LoseReplies(true)
	do, x := calls(o, c), minuteCell("x")
	if err := do[memstore.OpAdd](t.Context()); !errors.Is(err, store.ErrMaybeApplied) {
		t.Errorf("add: %v", err)
	}
	if got := o.Totals()[x]; got != 1 {
		t.Errorf("total after a lost reply: %d", got)
	}
	if err := do[memstore.OpPublish](t.Context()); err == nil || errors.Is(err, store.ErrRefused) {
		t.Errorf("publish: %v", err)
	}
	if got := c.Totals()[x]; got != 1 {
		t.Errorf("count after a lost reply: %d", got)
	}
}

func TestDelayIsHowLongACallTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, c := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
		o.Faults.Delay(50 * time.Millisecond)
		c.Faults.Delay(50 * time.Millisecond)
		for op, call := range calls(o, c) {
			began := time.Now()
			if err := call(t.Context()); err != nil || time.Since(began) != 50*time.Millisecond {
				t.Errorf("%s: %v after %v", op, err, time.Since(began))
			}
			for _, patience := range []time.Duration{10 * time.Millisecond, 40 * time.Millisecond} {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				began := time.Now()
				err := call(ctx)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != patience {
					t.Errorf("%s with %v to wait: %v after %v", op, patience, err, time.Since(began))
				}
				if maybe := errors.Is(err, store.ErrMaybeApplied); maybe != (op == memstore.OpAdd || op == memstore.OpClaim) {
					t.Errorf("%s with %v to wait: %v", op, patience, err)
				}
			}
		}
		if n := o.Stats().CellsAdded; n != 3 { // all that have left arrive
			t.Errorf("of three increments, two of them given up, %d were applied", n)
		}
	})
}

func TestRefusedRowsAreStoredNever(t *testing.T) {
	c := memstore.NewCounts(memstore.CountsOptions{})
	good, bad := store.Count{Cell: minuteCell("a"), Count: 1}, store.Count{Cell: minuteCell("b"), Count: 1}
	c.Faults.RefuseRow(func(row store.Count) bool { return row.Cell == bad.Cell })
	if err := c.Publish(t.Context(), "eu", []store.Count{good, bad}); !errors.Is(err, store.ErrRefused) {
		t.Errorf("both: %v", err)
	}
	if len(c.Rows()) != 0 {
		t.Errorf("refused, and stored: %v", c.Rows())
	}
	if err := c.Publish(t.Context(), "eu", []store.Count{good}); err != nil {
		t.Errorf("the good row alone: %v", err)
	}
	c.Faults.RefuseRow(nil)
	if err := c.Publish(t.Context(), "eu", []store.Count{bad}); err != nil {
		t.Errorf("after the fault: %v", err)
	}
	if s := c.Stats(); s.Publishes != 3 || s.ChunksRefused != 1 || s.RowsPublished != 2 || s.RowsGrown != 2 {
		t.Errorf("stats: %+v", s)
	}
}

// oneInEach is a cell of each shard.
func oneInEach(o *memstore.Origin) []window.Cell {
	cells := make([]window.Cell, o.Shards())
	for found, i := 0, 0; found < len(cells); i++ {
		c := minuteCell(fmt.Sprint(i))
		if shard := o.ShardOf(&c.Key); cells[shard] == (window.Cell{}) {
			cells[shard], found = c, found+1
		}
	}
	return cells
}

// "One that is down or slow concerns its own keys only."
func TestShardFaultsConcernOneShard(t *testing.T) {
	o := memstore.NewOrigin(memstore.OriginOptions{Shards: 3})
	cells := oneInEach(o)
	adds, claims := make([]store.Add, 3), make([]store.Claim, 3)
	for i, c := range cells {
		adds[i], claims[i] = store.Add{Cell: c, Cost: 1}, store.Claim{Cell: c, Cost: 1, AtMost: 9}
	}
	o.ShardFaults(1).Fail(errDown)
	for i, a := range o.Add(t.Context(), adds) {
		if errors.Is(a.Err, errDown) != (i == 1) || errors.Is(a.Err, store.ErrMaybeApplied) {
			t.Errorf("add to shard %d: %+v", i, a)
		}
	}
	for i, c := range o.Claim(t.Context(), claims) {
		if errors.Is(c.Err, errDown) != (i == 1) || c.Added == (i == 1) {
			t.Errorf("claim from shard %d: %+v", i, c)
		}
	}
	for i := range cells {
		if _, err := o.Read(t.Context(), cells[i:i+1]); errors.Is(err, errDown) != (i == 1) {
			t.Errorf("read from shard %d: %v", i, err)
		}
	}
	if totals, err := o.Read(t.Context(), cells); !errors.Is(err, errDown) || totals != nil {
		t.Errorf("a read of all shards: %v, %v", totals, err)
	}
	if err := o.Raise(t.Context(), adds); !errors.Is(err, errDown) {
		t.Errorf("raise in all shards: %v", err)
	}
	want := memstore.OriginStats{Reads: 6, Adds: 3, Claims: 3, Raises: 3, CellsRead: 4, CellsAdded: 2, CellsClaimed: 2}
	if got := o.Stats(); got != want {
		t.Errorf("stats are %+v, want %+v", got, want)
	}

	o.ShardFaults(1).Fail(nil)
	o.ShardFaults(2).LoseReplies(true)
	for i, a := range o.Add(t.Context(), adds) {
		if errors.Is(a.Err, store.ErrMaybeApplied) != (i == 2) {
			t.Errorf("add to shard %d: %+v", i, a)
		}
	}
	if got, want := o.Totals(), map[window.Cell]int64{cells[0]: 3, cells[1]: 1, cells[2]: 3}; !maps.Equal(got, want) {
		t.Errorf("totals are %v, want %v", got, want)
	}
}

// A call to several shards takes as long as the slowest, not as all together.
func TestShardsAreCalledAtTheSameTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := memstore.NewOrigin(memstore.OriginOptions{Shards: 3})
		o.Faults.Delay(time.Second)
		o.ShardFaults(0).Delay(2 * time.Second)
		began := time.Now()
		if _, err := o.Read(t.Context(), oneInEach(o)); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
	})
}
