package dataplane_test

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// If a count overflowed into the tag of its cell, it would look like another cell's count, and every request would
// wait for the right cell for ever. So each writer must stop below that: requests, batches and calls that no limit
// bounds, whatever their amounts and number.
func TestCountsNeverReachTheirTags(t *testing.T) {
	const most = window.LimitMax
	whole := ask("k", most, most)
	for name, c := range map[string]struct {
		outage string
		step   func(n *node) error
	}{
		"refunds that others know of": {step: func(n *node) error {
			n.Allow(context.Background(), whole)
			n.replay()
			_, err := n.Refund(whole)
			return err
		}},
		"settlements that others know of": {step: func(n *node) error {
			held, _ := n.AllowUpTo(context.Background(), whole)
			n.replay()
			_, err := held.Settle(0)
			return err
		}},
		"settlements far past the limit": {step: func(n *node) error {
			held, _ := n.AllowUpTo(context.Background(), ask("k", 1, most))
			_, err := held.Settle(most)
			return err
		}},
		"batches of an open namespace": {outage: "open", step: func(n *node) error {
			return n.AllowMany(context.Background(), []dataplane.Request{whole}).Err
		}},
		"singles of an open namespace": {outage: "open", step: func(n *node) error {
			return n.Allow(context.Background(), whole).Err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", Outage: c.outage})
			n := w.node("eu", "n1")
			if c.outage != "" {
				w.origin("eu").Faults.Fail(errDown)
			}
			done := make(chan error, 1)
			go func() {
				for range 20 {
					if err := c.step(n); err != nil {
						done <- err
						return
					}
				}
				n.Allow(context.Background(), ask("k", 1, 10))
				done <- nil
			}()
			select {
			case err := <-done:
				if s := n.Cell(w.cell("k")); err != nil || !s.Held || s.Count < 0 {
					t.Errorf("%v, %+v", err, s)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("a request never returns")
			}
		})
	}
}

// "The credit given in one cell is at most 2^53 in total; cost that is given back beyond that stays counted."
func TestCreditOfACellIsBounded(t *testing.T) {
	const most = window.LimitMax
	w := newWorld(t)
	n := w.node("eu", "n1")
	var given int64
	for range 5 {
		n.take("k", most, most)
		n.replay()
		back, err := n.Refund(ask("k", most, most))
		if err != nil {
			t.Fatal(err)
		}
		given += back
	}
	if given != 1<<53 {
		t.Errorf("%d were given back", given)
	}
}
