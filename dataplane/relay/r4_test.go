package relay_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// R4: two relays of one shard at once change nothing but load, however their calls interleave, fail, lose their replies
// or arrive late, and wherever a relay is killed.
func TestR4TwoRelaysAtOnce(t *testing.T) {
	for seed := range uint64(400) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { twoRelays(t, rand.New(rand.NewPCG(seed, 4))) })
	}
}

func twoRelays(t *testing.T, random *rand.Rand) {
	w, eu, us := newPair(t)
	eu.away = true // the relays below are eu's
	relays := []*stepper{eu.stepped("a", true), eu.stepped("b", true)}
	fate := func() fate {
		if random.IntN(10) > 0 {
			return arrives
		}
		return fate(random.IntN(4))
	}
	relays[0].fate, relays[1].fate = fate, fate
	var cells []window.Cell
	for i := range 6 {
		cells = append(cells, eu.cell(fmt.Sprint("k", i), time.Hour))
	}
	use := func() {
		c, r := cells[random.IntN(len(cells))], eu
		if random.IntN(8) == 0 {
			r = us
		}
		r.accept(c, 1+random.Int64N(3), 100)
	}
	for range 300 {
		v := relays[random.IntN(2)]
		switch random.IntN(10) {
		case 0:
			use()
		case 1:
			w.run(interval)
		case 2:
			if len(v.late) > 0 {
				v.deliver(random.IntN(len(v.late)))
			}
		default:
			v.next()
			w.checkR1()
		}
	}
	for _, v := range relays {
		v.fate = nil
	}
	if killed := random.IntN(3); killed < 2 { // kills a relay, or none
		relays[killed].kill()
		relays = append(relays[:killed:killed], relays[killed+1:]...)
	}
	for i := range 20 {
		if c := cells[i%len(cells)]; i == 10+i%len(cells) && random.IntN(2) == 0 { // long after eu
			us.accept(c, 1, 100)
		}
		for _, v := range relays {
			v.finish()
			if len(v.late) > 0 {
				v.deliver(random.IntN(len(v.late)))
			}
		}
		w.run(interval)
	}
	for _, c := range cells {
		wantPublished(w, c, eu, us)
	}
}

// wantPublished checks R5 and R2 of two regions whose relays have had time: a region may lack at most the other's count
// below 10 % of the limit of 100, and only if it does not use the cell itself.
func wantPublished(w *world, c window.Cell, a, b *region) {
	w.Helper()
	for _, r := range []*region{a, b} {
		lacks := w.fleet(c) - r.accepted[c] - r.total(c).Foreign
		if lacks > 0 && (r.accepted[c] > 0 || lacks >= 10) {
			w.Errorf("R5: %s knows %d of the %d of %v that the other region accepted", r.name, r.total(c).Foreign, w.fleet(c)-r.accepted[c], c)
		}
	}
}

// R4: a relay that has been replaced acknowledges no change that its successor has not seen, even if it has no count to
// publish for it.
func TestR4ASuccessorSeesEveryChange(t *testing.T) {
	for _, c := range []struct {
		what          string
		first, later  int64
		before, after int64 // costs that us accepts
	}{
		{"a total that waits for another region", 1, 5, 0, 1},
		{"a total that waits for another region, above the floor", 50, 1, 0, 1},
		{"a total that waits below a step", 50, 1, 1, 0},
	} {
		w, eu, us := newPair(t)
		eu.away = true
		old, successor := eu.stepped("a", true), eu.stepped("b", true)
		cell := eu.cell("k", time.Hour)
		us.accept(cell, c.before, 200)
		w.run(interval)
		eu.accept(cell, c.first, 200)
		old.finish()
		successor.finish()
		eu.accept(cell, c.later, 200)
		old.finish()
		old.kill()
		us.accept(cell, c.after, 200)
		for range 10 {
			w.run(interval)
			successor.finish()
		}
		if got := us.total(cell).Foreign; got != c.first+c.later {
			t.Errorf("%s: us knows %d of %d", c.what, got, c.first+c.later)
		}
	}
}

// R2, R5: after a relay is killed between any two of its calls, all counts are published and none counts twice.
func TestR5ARelayKilledAnywhere(t *testing.T) {
	for calls := range 40 {
		w, eu, us := newPair(t)
		eu.away = true
		victim := eu.stepped("a", true)
		cells := []window.Cell{eu.cell("below", time.Hour), eu.cell("above", time.Hour)}
		eu.accept(cells[0], 4, 100)
		eu.accept(cells[1], 40, 100)
		for range calls / 2 {
			victim.next()
		}
		eu.accept(cells[0], 1, 100)
		eu.accept(cells[1], 1, 100)
		us.accept(cells[0], 2, 100)
		for range calls - calls/2 {
			victim.next()
		}
		victim.kill()
		eu.away = false
		w.run(2 * time.Second)
		w.wantKnown(cells...)
	}
}

// R4: a relay whose lease has lapsed loads again when it has the lease again, because another relay may have
// acknowledged changes meanwhile.
func TestR4ALapsedLease(t *testing.T) {
	for what, lapse := range map[string]func(eu *region, begins bool){
		"its origin cannot be reached": func(eu *region, begins bool) {
			eu.relayOrigin.Faults.Fail(map[bool]error{true: errDown}[begins])
		},
		"it stands still": func(eu *region, begins bool) { eu.away = begins },
	} {
		t.Run(what, func(t *testing.T) { lapsedLease(t, lapse) })
	}
}

func lapsedLease(t *testing.T, lapse func(eu *region, begins bool)) {
	w, eu, us := newPair(t)
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	eu.accept(c, 50, 200)
	us.accept(c, 1, 200)
	w.run(time.Second)
	lapse(eu, true)
	w.run(4 * time.Second)
	other := eu.stepped("b", false)
	other.finish()
	eu.accept(c, 1, 200)
	other.finish()
	other.kill()
	w.run(3200 * time.Millisecond)
	if changes, err := eu.origin.Changes(t.Context(), 0, 1); err != nil || len(changes.Cells) > 0 {
		t.Fatalf("the other relay has left %v, %v", changes, err)
	}
	lapse(eu, false)
	w.run(1600 * time.Millisecond) // before it appends an empty row, which the store would refuse
	if got := us.total(c).Foreign; got != 51 {
		t.Errorf("us knows %d of 51", got)
	}
}

// R4: settings that a relay has read before another relay took over, and stores later, do not replace its successor's
// settings, whether or not the successor still has the lease.
func TestR4LateSettingsAreRefused(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		r := carrier(t, 1)
		second := r.carrierOver("second", r.counts)
		late := &delayedSettings{FullOrigin: r.relayOrigin}
		r.relay = r.carrierAt("first", late, r.counts)
		r.override(1)
		r.run(time.Second)
		late.before = func() { // after the first relay has checked its lease, before its call
			late.before = nil
			r.now = r.now.Add(time.Minute)
			r.override(2)
			for range 2 {
				if err := second.Step(context.Background()); err != nil {
					t.Error(err)
				}
			}
			r.wantLimit(2)
			if stopped {
				if err := second.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			}
		}
		for late.before != nil {
			r.now = r.now.Add(interval)
			if err := r.relay.Step(context.Background()); late.before == nil && !errors.Is(err, store.ErrNoLease) {
				t.Errorf("the first one's late call: %v, want ErrNoLease", err)
			}
		}
		r.wantLimit(2)
	}
}

// The age of settings counts from when the relay sent them: a call that reaches the origin late makes no copy look
// younger, and lengthens no trial's lease.
func TestALateCallLengthensNoTrial(t *testing.T) {
	r := carrier(t, 1)
	late := &delayedSettings{FullOrigin: r.relayOrigin}
	r.relay = r.carrierAt("first", late, r.counts)
	r.override(1)
	r.run(time.Second)
	const by = 2 * time.Second
	late.before = func() {
		late.before = nil
		r.now = r.now.Add(by)
	}
	for late.before != nil {
		r.run(interval)
	}
	if rows, err := r.relayOrigin.Settings(t.Context(), "eu"); err != nil || rows.Age < by/2 {
		t.Errorf("%v old, %v: the call took %v", rows.Age, err, by)
	}
}

// delayedSettings calls before when settings are on their way.
type delayedSettings struct {
	store.FullOrigin
	before func()
}

func (d *delayedSettings) StoreSettings(ctx context.Context, shard int, holder string, rows store.SettingsRows,
	asOf time.Time,
) error {
	if d.before != nil {
		d.before()
	}
	return d.FullOrigin.StoreSettings(ctx, shard, holder, rows, asOf)
}
