package slots

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func askFor(namespace, id string, limit int64) *Ask {
	return &Ask{Name: Name{"w", namespace, "k"}, Limit: limit, TTL: time.Minute, Unattended: true, ID: id, SinceMs: 5}
}

// However many leases by ID a caller or a namespace has, another finds room. A lease that has ended makes room.
func TestAFloodOfLeasesByIDLeavesOthersRoom(t *testing.T) {
	table := New(Config{})
	for i, flood := range []string{"flood", ""} {
		granted := []Lease{}
		for n := range idsMax {
			r := table.Try(as(t, flood), askFor("flood", strconv.Itoa(n), idsMax))
			if !r.Granted {
				if !errors.Is(r.Err, ErrFull) || r.Held != int64(n) {
					t.Fatalf("%q, %d: %+v", flood, n, r)
				}
				break
			}
			granted = append(granted, r.Lease)
		}
		if n := len(granted); n < idsMax/2 || n > idsMax*3/4 {
			t.Errorf("%q has %d of %d", flood, n, idsMax)
		}
		if r := table.Try(as(t, flood), askFor("flood", "0", 0)); !r.Granted || r.SinceMs != 5 {
			t.Errorf("%q, a lease that is held: %+v", flood, r)
		}
		if r := table.Try(as(t, "victim"), askFor("other", fmt.Sprint("victim", i), 9)); !r.Granted {
			t.Errorf("beside %q: %+v", flood, r)
		}
		for _, l := range granted {
			l.Release()
		}
	}
	if n := table.ids.Used(); n != 2 {
		t.Errorf("%d places are taken by two leases", n)
	}
}

// All requests that wait for a lease by ID get it together, whatever their own limits are and however it is granted.
func TestThoseWhoWaitForOneIDGetItTogether(t *testing.T) {
	for _, how := range []string{"a slot is released", "another request is granted"} {
		synctest.Test(t, func(t *testing.T) {
			table := New(Config{})
			attended := &Ask{Name: askFor("n", "", 0).Name, Limit: 2, TTL: time.Minute}
			held := table.Try(t.Context(), attended)
			var calls sync.WaitGroup
			leases := make([]Lease, 3)
			for i := range leases {
				calls.Go(func() { leases[i] = table.Wait(t.Context(), askFor("n", "job", 1)).Lease })
			}
			synctest.Wait()
			if how == "a slot is released" {
				held.Lease.Release()
			} else if r := table.Try(t.Context(), askFor("n", "job", 2)); !r.Granted {
				t.Fatalf("%+v", r)
			}
			calls.Wait()
			l, ok := table.ByID(&attended.Name, "job")
			for i := range leases {
				if leases[i] != l || !ok {
					t.Errorf("%s: request %d has %+v, not %+v", how, i, leases[i], l)
				}
			}
			if n := table.Stats().Waiters; n != 0 {
				t.Errorf("%s: %d wait", how, n)
			}
			l.Release()
			if _, ok := table.ByID(&attended.Name, "job"); ok {
				t.Errorf("%s: a lease that was released is found", how)
			}
		})
	}
}
