package slots

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/internal/fair"
)

// as returns a context of a caller.
func as(t *testing.T, label string) context.Context { return fair.With(t.Context(), label) }

// However many keys and namespaces a caller has leases in, another caller finds room, in any namespace.
func TestAFloodOfOneCallersKeysLeavesOthersRoom(t *testing.T) {
	const keys, namespaces = 10_000, 20
	table := New(Config{EntriesMax: keys})
	hold := func(label string, i int) error {
		return table.Try(as(t, label), &Ask{Name: Name{"w", strconv.Itoa(i % namespaces), label + strconv.Itoa(i)}, Limit: 1,
			TTL: time.Minute}).Err
	}
	refused := 0
	for i := range 2 * keys {
		if errors.Is(hold("flood", i), ErrFull) {
			refused++
		}
	}
	if n := table.keys.Used(); n != keys*3/4 || refused < keys {
		t.Errorf("one caller has %d keys of %d", n, keys)
	}
	for i := range keys / 10 {
		if err := hold("victim", i); err != nil {
			t.Fatalf("the victim's key %d: %v", i, err)
		}
	}
}

// However many requests of a caller wait for a key, another caller's request can wait too, and gets a slot after at
// most one slot of the others.
func TestAFloodOfWaitersLeavesOthersTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters, held = 100, time.Second
		table := New(Config{WaitersMax: waiters})
		wait := func(label string) (took time.Duration, err error) {
			from := time.Now()
			r := table.Wait(as(t, label), &Ask{Name: Name{"w", "n", "k"}, Limit: 1, TTL: time.Minute})
			if took, err = time.Since(from), r.Err; r.Granted {
				time.Sleep(held)
				r.Lease.Release()
			}
			return took, err
		}
		for range 2 * waiters {
			go func() { _, _ = wait("flood") }()
		}
		synctest.Wait()
		if n := table.Stats().Waiters; n != waiters*3/4 {
			t.Errorf("%d requests of one caller wait, want %d", n, waiters*3/4)
		}
		for range 10 {
			if took, err := wait("victim"); err != nil || took > 2*held {
				t.Errorf("another caller's request: %v, after %v", err, took)
			}
		}
		time.Sleep(time.Hour)
	})
}

// However many leases of a key a caller has, another caller can have some.
func TestAFloodOfLeasesOfAKeyLeavesOthersSome(t *testing.T) {
	table := New(Config{})
	acquire := func(ctx context.Context) Result {
		return table.Try(ctx, &Ask{Name: Name{"w", "n", "k"}, Limit: 10 * LeasesMax, TTL: time.Minute})
	}
	var first Lease
	flood, n := as(t, "flood"), 0
	for r := acquire(flood); r.Granted; r = acquire(flood) {
		first = r.Lease
		n++
	}
	if r := acquire(flood); !errors.Is(r.Err, ErrLeases) || n != LeasesMax*3/4 {
		t.Errorf("one caller has %d leases of %d: %v", n, LeasesMax, r.Err)
	}
	if r := acquire(as(t, "victim")); !r.Granted {
		t.Errorf("another caller: %+v", r)
	}
	if first.Release(); !acquire(flood).Granted {
		t.Error("a lease that was released makes no room")
	}
}
