package dataplane_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

// claimLoser loses answers to claims, either before or after the origin has decided them.
type claimLoser struct {
	store.FullOrigin
	loses, arrive atomic.Bool
	short         bool        // the answer arrives, but lacks a total
	unwritable    atomic.Bool // the origin answers that it cannot write the cell of k
	after         time.Duration
}

func (o *claimLoser) Send(ctx context.Context, chunk store.Chunk) (store.Reply, error) {
	if !chunk.Bounded() {
		return o.FullOrigin.Send(ctx, chunk)
	}
	if o.unwritable.Load() {
		reply, err := o.FullOrigin.Send(ctx, chunk)
		for i := range reply.Totals {
			if chunk.Costs[i].Cell.Identifier == "k" {
				reply.Totals[i] = store.Total{Epoch: reply.Totals[i].Epoch, Err: errDown}
			}
		}
		return reply, err
	}
	if !o.loses.Load() {
		return o.FullOrigin.Send(ctx, chunk)
	}
	if o.short {
		reply, err := o.FullOrigin.Send(ctx, chunk)
		reply.Totals = reply.Totals[:len(chunk.Costs)-1]
		return reply, err
	}
	if o.arrive.Load() {
		_, _ = o.FullOrigin.Send(ctx, chunk)
	}
	time.Sleep(o.after)
	return store.Reply{}, errDown
}

// lostClaim is a node whose claim of 7 of 10 has received no answer.
type lostClaim struct {
	failover
	loser   *claimLoser
	other   *node // of the region; it has read the key
	before  memstore.OriginState
	allowed bool
}

func loseClaim(t *testing.T, outage string, arrived, gone bool, change ...func(*claimLoser)) *lostClaim {
	w := newWorld(t)
	w.counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: "wait", Outage: outage})
	loser := &claimLoser{FullOrigin: w.origin("eu")}
	loser.arrive.Store(arrived)
	for _, f := range change {
		f(loser)
	}
	n := w.node("eu", "a", func(c *dataplane.Config) { c.Origin = loser })
	l := &lostClaim{failover: failover{n, w}, loser: loser}
	l.other = w.node("eu", "b")
	l.Peek(t.Context(), ask("k", 0, 10))
	l.pass(time.Second)
	l.before = w.origin("eu").State()
	ctx, cancel := t.Context(), func() {}
	if gone {
		loser.after = 20 * time.Millisecond
		ctx, cancel = context.WithTimeout(ctx, 10*time.Millisecond)
	}
	defer cancel()
	loser.loses.Store(true)
	l.allowed = l.Allow(ctx, ask("k", 7, 10)).Allowed
	l.AwaitCalls()
	loser.loses.Store(false)
	return l
}

// has returns the origin's count of the key.
func (l *lostClaim) has() int64 { return totals(l.w.origin("eu"))[l.w.cell("k")] }

// lostClaims runs a test for all ways in which a claim can lose its answer.
func lostClaims(t *testing.T, run func(t *testing.T, l *lostClaim, outage string, arrived bool)) {
	for _, outage := range []string{"local", "closed"} {
		for _, arrived := range []bool{true, false} {
			for _, gone := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, arrived %v, caller gone %v", outage, arrived, gone), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						l := loseClaim(t, outage, arrived, gone)
						if l.allowed != (outage == "local") {
							t.Fatalf("without the answer: allowed %v", l.allowed)
						}
						run(t, l, outage, arrived)
					})
				})
			}
		}
	}
}

// A node resolves a claim whose answer is lost. Cost that was allowed without the answer is at the origin once. If
// the request was denied, the claimed cost is either the node's credit or was not added.
func TestWhatBecameOfALostClaimIsFoundOut(t *testing.T) {
	for name, between := range map[string]func(l *lostClaim){
		"":                                    func(*lostClaim) {},
		", in an origin that is emptied":      func(l *lostClaim) { l.w.origin("eu").Wipe() },
		", in a replica that lacks the claim": func(l *lostClaim) { l.w.origin("eu").Rollback(l.before) },
	} {
		t.Run("found out"+name, func(t *testing.T) {
			lostClaims(t, func(t *testing.T, l *lostClaim, outage string, arrived bool) {
				between(l)
				l.pass(6 * time.Second)
				if outage == "closed" {
					wantAllowed(t, "the same cost again", l.take("k", 7, 10), true, 3)
				}
				wantAllowed(t, "more than is left", l.take("k", 4, 10), false, 3)
				l.pass(time.Second)
				if got := l.has(); got != 7 {
					t.Errorf("the origin has %d, want the 7 that were allowed", got)
				}
				if c := l.Cell(l.w.cell("k")); c.Claiming != 0 || c.Credit != 0 || c.Unsent != 0 {
					t.Errorf("%+v", c)
				}
			})
		})
	}
}

// An answer with too few totals is no answer: the origin may have added the cost, so the same call is made again.
func TestAnAnswerToAClaimThatLacksATotalIsAskedForAgain(t *testing.T) {
	for _, outage := range []string{"local", "closed"} {
		t.Run(outage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := loseClaim(t, outage, true, false, func(o *claimLoser) { o.short = true })
				if l.allowed != (outage == "local") {
					t.Fatalf("without the answer: allowed %v", l.allowed)
				}
				l.pass(2 * time.Second)
				c, want := l.Cell(l.w.cell("k")), int64(0)
				if outage == "closed" {
					want = 7 // the caller was denied although the origin has added the cost
				}
				if got := l.has(); got != 7 || c.Claiming != 0 || c.Credit != want || c.Unsent != 0 {
					t.Errorf("the origin has %d, want 7 once, and credit for %d: %+v", got, want, c)
				}
			})
		})
	}
}

// Cost that was allowed without the answer is restored with all other cost, although another node has read it.
func TestALostClaimThatAnotherNodeKnowsIsRestoredOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loseClaim(t, "local", true, false)
		l.other.take("k", 1, 10)
		l.other.replay()
		l.w.origin("eu").Wipe()
		for range 3 {
			l.other.replay()
			l.pass(time.Second)
		}
		if got := l.has(); got != 8 {
			t.Errorf("the origin has %d, want the 7 and 1 that were allowed", got)
		}
	})
}

// Stop resolves a lost claim, and sends the cost that remains.
func TestStopFindsOutAboutALostClaim(t *testing.T) {
	lostClaims(t, func(t *testing.T, l *lostClaim, outage string, arrived bool) {
		if err := l.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if got := l.has(); outage == "local" && got != 7 || outage == "closed" && !arrived && got != 0 {
			t.Errorf("the origin has %d", got)
		}
	})
}

// Cost that was allowed without the answer counts as dropped if the origin, when it answers, has not added it and the
// cell has expired.
func TestALostClaimThatIsFoundOutTooLateIsDropped(t *testing.T) {
	lostClaims(t, func(t *testing.T, l *lostClaim, outage string, arrived bool) {
		l.loser.loses.Store(true)
		for _, later := range []time.Duration{time.Second, 3 * time.Minute} {
			time.Sleep(later)
			l.w.clock.advance(later)
			if err := l.ReplayOnce(t.Context()); err == nil {
				t.Fatal("the origin answers")
			}
		}
		l.take("k", 1, 10) // the entry moves on, and drops the cell
		l.loser.loses.Store(false)
		l.pass(5 * time.Second)
		want := int64(0)
		if outage == "local" && !arrived {
			want = 7
		}
		if h := l.Health(); h.DroppedCost != want || h.PendingCost != 0 {
			t.Errorf("%d counted as dropped, want %d; %d pending", h.DroppedCost, want, h.PendingCost)
		}
	})
}

// Stop returns an error that names the claims it could not resolve.
func TestStopTellsOfALostClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loseClaim(t, "local", true, false)
		l.loser.loses.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := l.Stop(ctx); err == nil {
			t.Error("no error, though it is unknown whether the origin has the cost")
		}
	})
}

// A lost claim on a cell that the origin cannot write, because it holds a value that is no count, is answered with an
// error in the origin's epoch. That is an answer: later claims of the shard don't wait for another.
func TestALostClaimOnAnUnwritableCellHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loseClaim(t, "local", false, false)
		l.loser.unwritable.Store(true)
		l.pass(2 * time.Second)
		for i := range 3 {
			if d := l.Allow(t.Context(), ask(fmt.Sprint("other", i), 9, 10)); !d.Allowed || d.Source.Degraded() {
				t.Errorf("claim %d after it: %+v", i, d)
			}
			l.pass(time.Second)
		}
		if err := l.Stop(t.Context()); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
}

// Claims wait for an earlier lost claim to be resolved, but no longer than for their own answers.
func TestClaimsBehindALostOneAreBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := loseClaim(t, "local", true, false)
		l.loser.loses.Store(true)
		l.loser.after = time.Minute
		began := time.Now()
		d := l.Allow(t.Context(), ask("l", 9, 10))
		if waited := time.Since(began); waited > 6*time.Second || !d.Allowed || !d.Source.Degraded() {
			t.Errorf("after %v: %+v", waited, d)
		}
	})
}

// If an emptied origin refuses a claim, the node restores its accepted cost at once, although it has nothing else to
// send, and the next claim is decided with that cost.
func TestAClaimThatFindsAnEmptiedOriginRestoresIt(t *testing.T) {
	for _, outage := range []string{"local", "open", "closed"} {
		t.Run(outage, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				row := store.NamespaceRow{Workspace: "acme", Namespace: "api", NodeShare: "wait", Outage: outage}
				w.counts.SetNamespaces(row)
				f := &failover{w.node("eu", "a"), w}
				f.take("k", 7, 10)
				w.origin("eu").Wipe()
				cost := f.take("k", 1, 10)
				f.replay()
				want := int64(7)
				if cost.Allowed {
					want = 8
				}
				if got := totals(w.origin("eu"))[w.cell("k")]; got != want {
					t.Errorf("the origin has %d, want the %d that were accepted", got, want)
				}
				wantAllowed(t, "all that is left", f.take("k", 10-want, 10), true, 0)
			})
		})
	}
}
