package memstore_test

import (
	"context"
	"errors"
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

// isMaybe reports whether err leaves open if a chunk was applied.
func isMaybe(op memstore.Op, err error) bool {
	return (op == memstore.OpSend || op == memstore.OpClaim) && err != nil && !errors.Is(err, store.ErrNotApplied)
}

// calls returns methods of both stores as functions that return an error.
func calls(h *memstore.Origin, c *memstore.Counts) map[memstore.Op]func(context.Context) error {
	cell := minuteCell("x")
	number := int64(0)
	return map[memstore.Op]func(context.Context) error{
		memstore.OpRead: func(ctx context.Context) error { _, err := h.Read(ctx, []window.Cell{cell}); return err },
		memstore.OpSend: func(ctx context.Context) error {
			number++
			_, err := h.Send(ctx, store.Chunk{Stream: 1, Number: number, Costs: []store.Cost{{Cell: cell, Add: 1}}})
			return err
		},
		memstore.OpClaim: func(ctx context.Context) error {
			number++
			costs := []store.Cost{{Cell: cell, Add: 1, AtMost: 9}}
			_, err := h.Send(ctx, store.Chunk{Stream: 2, Number: number, Costs: costs})
			return err
		},
		memstore.OpApply: func(ctx context.Context) error {
			_, err := h.Apply(ctx, 0, []store.Foreign{{Cell: cell, Count: 1}})
			return err
		},
		memstore.OpPublish: func(ctx context.Context) error {
			return c.Publish(ctx, "eu", []store.Count{{Cell: cell, Count: 1}})
		},
		memstore.OpImport: func(ctx context.Context) error {
			return c.Import(ctx, 0, func(string, store.Count) {})
		},
		memstore.OpSettings:  func(ctx context.Context) error { _, err := c.Settings(ctx, "eu"); return err },
		memstore.OpHeartbeat: func(ctx context.Context) error { return c.Heartbeat(ctx, heartbeat.Heartbeat{NodeID: "n"}) },
	}
}

func TestFailFailsEveryCallUntilItIsTakenBack(t *testing.T) {
	for op := range calls(nil, nil) {
		h, c := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
		call := calls(h, c)[op]
		h.Faults.Fail(errDown)
		c.Faults.Fail(errDown)
		if err := call(t.Context()); !errors.Is(err, errDown) || isMaybe(op, err) {
			t.Errorf("%s while down: %v", op, err)
		}
		if len(h.Totals()) != 0 || len(c.Rows()) != 0 || len(c.Heartbeats()) != 0 {
			t.Errorf("%s while down was applied", op)
		}
		h.Faults.Fail(nil)
		c.Faults.Fail(nil)
		if err := call(t.Context()); err != nil {
			t.Errorf("%s after it: %v", op, err)
		}
		h.Wipe()
		c.Wipe()
		if len(h.Totals()) != 0 || len(c.Rows()) != 0 || len(c.Heartbeats()) != 0 != (op == memstore.OpHeartbeat) {
			t.Errorf("%s: a wipe forgets counts and nothing else", op)
		}
	}
}

// A refused kind of call fails, and all other kinds succeed, until the refusal ends.
func TestRefusedKindsFailAloneUntilTheyAreTakenBack(t *testing.T) {
	for refused := range calls(nil, nil) {
		for op := range calls(nil, nil) {
			h, c := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
			call := calls(h, c)[op]
			want := func(when string, refuses bool) {
				t.Helper()
				if err := call(t.Context()); errors.Is(err, errDown) != refuses || (err != nil) != refuses ||
					isMaybe(op, err) {
					t.Errorf("%s, %s was refused: %s answers %v", when, refused, op, err)
				}
			}
			h.Faults.Refuse(errDown, refused)
			c.Faults.Refuse(errDown, refused)
			want("at first", op == refused)
			h.Faults.Refuse(nil, memstore.OpScan)
			want("with another kind let through", op == refused)
			h.Faults.Refuse(nil, refused)
			c.Faults.Refuse(nil)
			want("afterwards", false)
		}
	}
}

func TestHookSeesEveryCallAndChoosesWhichFail(t *testing.T) {
	h, c := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
	var seen []memstore.Op
	hook := func(op memstore.Op) error {
		seen = append(seen, op)
		if op == memstore.OpImport {
			return errDown
		}
		return nil
	}
	h.Faults.Hook(hook)
	c.Faults.Hook(hook)
	for op, call := range calls(h, c) {
		err := call(t.Context())
		if want := op == memstore.OpImport; errors.Is(err, errDown) != want {
			t.Errorf("%s: %v", op, err)
		}
		if len(seen) == 0 || seen[len(seen)-1] != op {
			t.Errorf("the hook saw %v instead of %s", seen, op)
		}
	}
}

func TestLostRepliesAreApplied(t *testing.T) {
	h, c := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
	h.Faults.LoseReplies(true)
	c.Faults.LoseReplies(true)
	do, x := calls(h, c), minuteCell("x")
	if err := do[memstore.OpClaim](t.Context()); !isMaybe(memstore.OpClaim, err) {
		t.Errorf("claim: %v", err)
	}
	if got := h.Totals()[x].Region; got != 1 {
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
		h, c := memstore.NewOrigin(memstore.OriginOptions{}), memstore.NewCounts(memstore.CountsOptions{})
		h.Faults.Delay(50 * time.Millisecond)
		c.Faults.Delay(50 * time.Millisecond)
		for op, call := range calls(h, c) {
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
				if errors.Is(err, store.ErrNotApplied) {
					t.Errorf("%s with %v to wait: %v", op, patience, err)
				}
			}
		}
		if got := h.Totals()[minuteCell("x")].Region; got != 6 { // all that have left arrive
			t.Errorf("of three chunks and three claims, two of each given up, %d were applied", got)
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
	if s := c.Stats(); s.Publishes != 3 || s.ChunksRefused != 1 || s.RowsPublished != 2 || s.RowsWritten != 2 {
		t.Errorf("stats: %+v", s)
	}
}
