package dataplane_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

func (n *node) turn(what string, step func() error) {
	n.w.t.Helper()
	if err := step(); err != nil {
		n.w.t.Fatalf("%s: %v", what, err)
	}
}

func (n *node) digest() { n.turn("digest", func() error { return n.DigestOnce(n.w.t.Context()) }) }
func (n *node) learn()  { n.turn("learn", func() error { return n.LearnOnce(n.w.t.Context()) }) }
func (n *node) tell()   { n.turn("tell", func() error { return n.TellOnce(n.w.t.Context()) }) }

// acquaint lets nodes know of each other's keys.
func acquaint(t testing.TB, nodes ...*node) {
	t.Helper()
	for _, n := range nodes {
		n.digest()
	}
	for _, n := range nodes {
		n.learn()
		if !n.Covered() {
			t.Fatal("a node does not know all regions")
		}
	}
}

// "Another region's filter holds the key, and the region's count has come to its part of
// unseenShare of the limit": told in a bulletin, below the floor, without a row. "Another
// region has told of it": answered, whatever the share.
func TestASharedKeyIsToldBelowTheFloor(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("us", "b")
	a.take("k", 1, 100)
	b.take("k", 1, 100)
	acquaint(t, a, b)
	a.take("k", 8, 100)
	a.tell()
	b.learn()
	if got := b.Cell(w.cell("k")).Global; got != 0 {
		t.Fatalf("9 of 100 were told: %d", got)
	}
	w.clock.advance(2 * time.Second)
	a.take("k", 1, 100)
	a.tell()
	b.learn()
	if got := b.Cell(w.cell("k")).Global; got != 10 {
		t.Fatalf("us knows of %d, want 10", got)
	}
	b.tell()
	a.learn()
	if got := a.Cell(w.cell("k")).Global; got != 1 {
		t.Errorf("eu knows of %d, want 1", got)
	}
	a.flush()
	b.flush()
	if rows := w.counts.Rows(); len(rows) != 0 {
		t.Errorf("rows: %v", rows)
	}
}

// "So new that this node's filter does not hold it": two regions that begin in the same
// moment know of each other before the next digest.
func TestANewKeyIsAnnounced(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("us", "b")
	acquaint(t, a, b)
	a.take("k", 10, 100)
	b.take("k", 10, 100)
	for _, n := range []*node{a, b} {
		n.tell()
	}
	for _, n := range []*node{a, b} {
		n.learn()
		if got := n.Cell(w.cell("k")).Global; got != 10 {
			t.Errorf("a node knows of %d, want 10", got)
		}
	}
}

// A key that had its traffic here before it has any elsewhere is told of when another
// region's filter comes to hold it, though nothing more is accepted here.
func TestAKeyIsToldWhenItTurnsUpElsewhere(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("us", "b")
	a.take("k", 100, 100)
	acquaint(t, a, b)
	a.tell()
	b.learn()
	b.take("k", 1, 100)
	b.tell()
	if got := b.Cell(w.cell("k")).Global; got != 0 {
		t.Fatalf("us was told of a key that it did not use: %d", got)
	}
	w.clock.advance(5 * time.Second)
	b.digest()
	a.learn()
	a.tell()
	b.learn()
	if got := b.Cell(w.cell("k")).Global; got != 100 {
		t.Errorf("us knows of %d, want 100", got)
	}
}

// What a bulletin told of a key without traffic is not forgotten when traffic comes.
func TestABulletinIsRememberedForKeysThatCome(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("us", "b")
	acquaint(t, a, b)
	a.take("k", 90, 100)
	a.tell()
	b.learn()
	if b.Entries() != 0 {
		t.Error("a bulletin created an entry")
	}
	b.take("k", 1, 100)
	b.tell()
	if got := b.Cell(w.cell("k")).Global; got != 90 {
		t.Errorf("us knows of %d, want 90", got)
	}
}

// Where a region's digests are missing, rows are told as before, and where they are at
// hand a row wakes nobody.
func TestRowsAreQuietWhileDigestsAreAtHand(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("us", "b")
	acquaint(t, a, b)
	b.imports() // everything, once
	a.take("k", 60, 100)
	a.replay() // its increment passes the mark
	a.flush()
	if got := w.published("eu", w.cell("k")); got != 60 {
		t.Fatalf("stored %d, want 60", got)
	}
	b.imports()
	if got := b.Cell(w.cell("k")).Global; got != 0 {
		t.Fatalf("the row of a key that only eu uses was told: %d", got)
	}
	w.clock.advance(31 * time.Second) // b says nothing more
	if a.Covered() {
		t.Fatal("digests are good for ever")
	}
	a.take("k", 10, 100)
	a.flush()
	b.imports()
	if got := b.Cell(w.cell("k")).Global; got != 70 {
		t.Errorf("us knows of %d, want 70", got)
	}
}

// A region that publishes rows and no digests uses any key; one of which only old rows are
// left, of a window that is long, is there no more.
func TestWhoIsThere(t *testing.T) {
	for ageMin, want := range map[int64]bool{1: false, 11: true} {
		w := newWorld(t)
		a, b := w.node("eu", "a"), w.node("us", "b")
		acquaint(t, a, b)
		day := window.Cell{Key: window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: 24 * time.Hour}, Sequence: window.Sequence(w.clock.Now().UnixMilli(), 86_400_000)}
		row := store.Count{Cell: day, Count: 5, CountedAtMs: w.clock.Now().UnixMilli() - ageMin*60_000}
		if err := w.counts.Publish(t.Context(), "ap", []store.Count{row}); err != nil {
			t.Fatal(err)
		}
		a.imports()
		if got := a.Covered(); got != want {
			t.Errorf("with a row %d min old: covered %v, want %v", ageMin, got, want)
		}
	}
}

// A node that cannot tell others which keys it uses publishes rows that everybody sees.
func TestRowsAreLoudWhenTellingFails(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("us", "b")
	acquaint(t, a, b)
	w.counts.Faults.Hook(func(op memstore.Op) error {
		if op == memstore.OpPublishDigest {
			return errDown
		}
		return nil
	})
	a.take("k", 30, 100)
	if err := a.TellOnce(t.Context()); !errors.Is(err, errDown) {
		t.Fatalf("tell: %v", err)
	}
	b.imports()
	a.flush()
	b.imports()
	if got := b.Cell(w.cell("k")).Global; got != 30 {
		t.Errorf("us knows of %d, want 30", got)
	}
	w.counts.Faults.Hook(nil)
	a.tell()
	if !a.Covered() {
		t.Error("a bulletin that could be published changes nothing")
	}
}

// "The one whose increment passed the mark stores it."
func TestOneNodeStoresAMark(t *testing.T) {
	w := newWorld(t)
	a, b, us := w.node("eu", "a"), w.node("eu", "b"), w.node("us", "u")
	acquaint(t, a, b, us)
	for _, n := range []*node{a, b} {
		n.take("k", 30, 100)
	}
	a.replay()
	b.replay()
	a.take("k", 1, 100)
	w.clock.advance(6 * time.Second)
	a.Peek(t.Context(), ask("k", 0, 100)) // hears that the region has 60
	a.flush()
	b.flush()
	if stats := w.counts.Stats(); stats.RowsPublished != 1 || w.published("eu", w.cell("k")) != 60 {
		t.Errorf("%d rows, %d stored; want one of 60", stats.RowsPublished, w.published("eu", w.cell("k")))
	}
}

// What a bulletin told is not taken back: a refund is credit.
func TestARefundTakesNothingBackThatABulletinTold(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("eu", "a"), w.node("us", "b")
	acquaint(t, a, b)
	held, _ := a.Reserve(t.Context(), ask("k", 50, 100))
	a.tell()
	if change, err := held.Settle(10); change != -40 || err != nil {
		t.Fatal(change, err)
	}
	b.take("k", 1, 100)
	b.learn()
	if s := a.Cell(w.cell("k")); s.Count != 50 || s.Credit != 40 {
		t.Errorf("eu: %+v", s)
	}
	if got := b.Cell(w.cell("k")).Global; got != 50 {
		t.Errorf("us knows of %d, want 50", got)
	}
	w.clock.advance(6 * time.Second)
	a.take("k", 45, 100) // 40 of it are paid from the credit
	a.tell()
	b.learn()
	if got := b.Cell(w.cell("k")).Global; got != 55 {
		t.Errorf("us knows of %d, want 55", got)
	}
}

// "Age of the youngest cost of another region when a decision first used it", in metrics
// and heartbeats: here 3 s, and what the loops add.
func TestConvergenceDelayIsMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		eu := started(t, "eu", "e", memstore.NewOrigin(memstore.OriginOptions{}), counts)
		us := started(t, "us", "u", memstore.NewOrigin(memstore.OriginOptions{}), counts)
		time.Sleep(20 * time.Second)
		var accepted time.Time
		for key := 0; us.Health().ConvergenceSamples == 0; key++ {
			if key == 5 {
				t.Fatal("nothing was told, or not when it was accepted")
			}
			// A count that is told because a filter came in between has no time: then
			// another key.
			k := fmt.Sprint("k", key)
			us.Allow(t.Context(), ask(k, 1, 10))
			eu.Allow(t.Context(), ask(k, 9, 10))
			for accepted = time.Now(); us.Health().ConvergenceSamples == 0 && time.Since(accepted) < 10*time.Second; {
				time.Sleep(50 * time.Millisecond)
				us.Allow(t.Context(), ask(k, 0, 10))
				us.Allow(t.Context(), ask(k, 1, 10))
			}
		}
		late := time.Since(accepted)
		h := us.Health()
		// At most a replay tick too high, never too low.
		if h.ConvergenceP99 < late-60*time.Millisecond || h.ConvergenceP99 > late+200*time.Millisecond || h.ConvergenceP50 != h.ConvergenceP99 {
			t.Errorf("measured %v, used after %v", h.ConvergenceP99, late)
		}
		if len(h.ConvergenceFrom) != 1 || h.ConvergenceFrom["eu"] != h.ConvergenceP99 {
			t.Errorf("by region: %v", h.ConvergenceFrom)
		}
		if got := gather(t, us)[`weir_convergence_delay_seconds{from="eu"}`]; got != 1 {
			t.Errorf("%v observations", got)
		}
	})
}

// "Everything the first time, every full interval and when there is reason to believe
// that the origin has lost something; otherwise what changed."
func TestFullImportsAreRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts, origin := memstore.NewCounts(memstore.CountsOptions{}), memstore.NewOrigin(memstore.OriginOptions{})
		l := started(t, "eu", "e", origin, counts)
		full := func() int64 { return counts.Stats().FullImports }
		time.Sleep(7 * time.Minute)
		if got, all := full(), counts.Stats().Imports; got != 1 || all < 300 {
			t.Fatalf("%d full imports of %d", got, all)
		}
		l.Allow(t.Context(), ask("k", 5, 10))
		time.Sleep(time.Second)
		origin.Wipe()
		l.Allow(t.Context(), ask("k", 1, 10))
		time.Sleep(5 * time.Second)
		if got := full(); got != 2 {
			t.Errorf("%d full imports after the origin lost its data, want 2", got)
		}
		time.Sleep(13 * time.Minute)
		if got := full(); got != 3 {
			t.Errorf("%d full imports after another 13 min, want 3", got)
		}
	})
}

// One slow statement never delays the other loop.
func TestASlowFlushDelaysNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		counts.Faults.SlowCommits(func() time.Duration { return time.Hour })
		l := started(t, "eu", "e", memstore.NewOrigin(memstore.OriginOptions{}), counts)
		l.Allow(t.Context(), ask("k", 9, 10))
		time.Sleep(2 * time.Second) // a flush hangs
		before := counts.Stats()
		time.Sleep(5 * time.Second)
		after := counts.Stats()
		if after.Publishes != before.Publishes || before.Publishes != 1 {
			t.Fatalf("%d, then %d publishes: nothing hangs", before.Publishes, after.Publishes)
		}
		if n := after.Imports - before.Imports; n < 4 {
			t.Errorf("%d imports in 5 s", n)
		}
		if n := after.DigestReads - before.DigestReads; n < 4 {
			t.Errorf("%d reads of digests in 5 s", n)
		}
		if after.Heartbeats == before.Heartbeats || after.SettingsReads == before.SettingsReads {
			t.Error("no heartbeat or no settings in 5 s")
		}
	})
}

// Incremental import equals a full import at every step of a random history: a node that
// follows by its cursor knows of every cell what a node that reads everything knows, unless
// it was last raised quietly.
func TestCursorsMissNothingThroughTheLimiter(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		follower := w.node("eu", "follower")
		cells := make([]window.Cell, 4)
		for i := range cells {
			cells[i] = w.cell(string(rune('a' + i)))
		}
		stored, hidden := make(map[string]int64), make(map[window.Cell]bool)
		for range rapid.IntRange(1, 12).Draw(rt, "steps") {
			for range rapid.IntRange(0, 4).Draw(rt, "publishes") {
				region, cell := rapid.SampledFrom([]string{"us", "ap", "eu"}).Draw(rt, "region"), rapid.SampledFrom(cells).Draw(rt, "cell")
				id := region + cell.Identifier
				grow := rapid.Int64Range(0, 5).Draw(rt, "growth")
				quiet := rapid.Bool().Draw(rt, "quiet")
				stored[id] += grow
				if err := w.counts.Publish(t.Context(), region, []store.Count{{Cell: cell, Count: stored[id], Quiet: quiet}}); err != nil {
					rt.Fatal(err)
				}
				if region != "eu" && grow > 0 {
					hidden[cell] = quiet || hidden[cell]
				}
			}
			w.clock.advance(time.Duration(rapid.IntRange(0, 1500).Draw(rt, "ms")) * time.Millisecond)
			follower.imports()
			all := w.node("eu", "all")
			all.imports()
			for _, c := range cells {
				got, want := follower.Cell(c).Global, all.Cell(c).Global
				if got > want || got < want && !hidden[c] {
					rt.Fatalf("%s: %d by cursors, %d in all", c.Identifier, got, want)
				}
			}
		}
	})
}

// The preset of the design that went before has neither digests nor cursors.
func TestRFCPresetReadsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		counts := memstore.NewCounts(memstore.CountsOptions{})
		doc, err := tuning.RFC().Document()
		if err != nil {
			t.Fatal(err)
		}
		counts.SetTuning("", 1, doc)
		started(t, "eu", "e", nil, counts)
		time.Sleep(time.Minute)
		s := counts.Stats()
		if s.DigestsPublished != 0 || s.DigestReads != 0 || s.FullImports < 5 || s.Imports-s.FullImports > 1 {
			t.Errorf("%+v", s)
		}
	})
}
