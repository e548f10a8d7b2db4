package slots_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/memstore"
)

// However a lease with a short time to live gets its slot, the slot is free soon after the node has died, even if other
// leases of the node last longer.
func TestAShortTimeToLiveIsKeptBesideALongOne(t *testing.T) {
	const limit = 8
	ways := map[string]func(t *testing.T, n *node, long slots.Result){
		"granted from a spare slot": func(t *testing.T, n *node, _ slots.Result) {
			n.try(limit, 5*time.Minute)
			if r := n.try(limit, time.Second); !r.Granted || r.Asked {
				t.Errorf("%+v", r)
			}
		},
		"waited for": func(t *testing.T, n *node, _ slots.Result) {
			for range limit - 2 { // no spare slot is left
				if r := n.try(limit, 5*time.Minute); !r.Granted {
					t.Errorf("%+v", r)
				}
			}
			if r := n.waitFor(time.Second, limit, time.Second); !r.Granted {
				t.Errorf("%+v", r)
			}
		},
		"renewed for a short time": func(t *testing.T, n *node, long slots.Result) {
			long.Lease.Release()
			short := ask(limit, 5*time.Minute)
			short.Unattended = true
			r := n.Try(context.Background(), short)
			time.Sleep(5*time.Minute - 500*time.Millisecond)
			if !r.Granted || !r.Lease.Renew(time.Second) {
				t.Errorf("%+v", r)
			}
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			fleet(t, 2, func(t *testing.T, _ *memstore.Origin, n []*node) {
				long := n[0].try(limit, 5*time.Minute)
				if !long.Granted {
					t.Fatalf("%+v", long)
				}
				way(t, n[0], long)
				time.Sleep(100 * time.Millisecond)
				n[0].kill()
				time.Sleep(2 * time.Second)
				for i := range limit {
					if r := n[1].waitFor(time.Second, limit, time.Second); !r.Granted {
						t.Fatalf("slot %d is not free: %+v", i, r)
					}
				}
			})
		})
	}
}

// A key that was just refused does not cause a call for each request.
func TestARefusalIsRememberedForAMoment(t *testing.T) {
	fleet(t, 2, func(t *testing.T, _ *memstore.Origin, n []*node) {
		if r := n[0].try(1, 5*time.Minute); !r.Granted {
			t.Fatalf("%+v", r)
		}
		for range 100 {
			if r := n[1].try(1, time.Second); r.Granted || r.Err != nil {
				t.Fatalf("%+v", r)
			}
		}
		if calls, _ := n[1].calls(); len(calls) != 1 {
			t.Errorf("%d calls about 100 requests at one moment", len(calls))
		}
		time.Sleep(30 * time.Millisecond)
		n[1].try(1, time.Second)
		if calls, _ := n[1].calls(); len(calls) != 2 {
			t.Errorf("%d calls 30 ms later", len(calls))
		}
	})
}

// While an origin recovers, waiting requests cause a call when it has recovered, and not all the time.
func TestARecoveringOriginIsAskedWhenItHasRecovered(t *testing.T) {
	fleet(t, 1, func(t *testing.T, origin *memstore.Origin, n []*node) {
		origin.Wipe()
		began := time.Now()
		if r := n[0].waitFor(time.Minute, 1, 10*time.Second); !r.Granted || time.Since(began) > 12*time.Second {
			t.Errorf("after %v: %+v", time.Since(began), r)
		}
		if calls, _ := n[0].calls(); len(calls) > 5 {
			t.Errorf("%d calls", len(calls))
		}
	})
}

// A slot whose lease has ended by the time that a call fails goes to a request that waits for the call's answer.
func TestAFailedCallServesThoseWhoWait(t *testing.T) {
	fleet(t, 1, func(t *testing.T, _ *memstore.Origin, n []*node) {
		short := ask(1, 1010*time.Millisecond)
		short.Unattended = true
		if r := n[0].Try(t.Context(), short); !r.Granted {
			t.Fatalf("%+v", r)
		}
		time.Sleep(790 * time.Millisecond)
		n[0].way.Faults.Delay(time.Hour) // the call fails after 250 ms, 10 ms before the loop ends the lease
		if r := n[0].Try(t.Context(), ask(1, 10*time.Second)); !r.Granted {
			t.Errorf("%+v", r)
		}
	})
}

// A slot that has become free goes to a waiting request, and not to a request that comes in the moment before the slot
// is served.
func TestARequestDoesNotPassThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := nodeOf(t, nil, 1)
		defer n.kill()
		short := ask(1, 1010*time.Millisecond)
		short.Unattended = true
		if r := n.Try(t.Context(), short); !r.Granted {
			t.Fatalf("%+v", r)
		}
		waits := make(chan slots.Result, 1)
		go func() { waits <- n.waitFor(time.Minute, 1, time.Minute) }()
		time.Sleep(1010 * time.Millisecond)
		if r := n.try(1, time.Minute); r.Granted {
			t.Error("a request passes one who waits")
		}
		if r := <-waits; !r.Granted || r.Asked {
			t.Errorf("%+v", r)
		}
		if r := n.waitFor(time.Second, 1, time.Minute); r.Granted || r.Asked {
			t.Errorf("a wait in vain, in a process alone: %+v", r)
		}
	})
}

// Calls have a lowered limit from the first request with it.
func TestALoweredLimitReachesTheOrigin(t *testing.T) {
	fleet(t, 1, func(t *testing.T, _ *memstore.Origin, n []*node) {
		if r := n[0].try(100, 3*time.Second); !r.Granted {
			t.Fatalf("%+v", r)
		}
		n[0].try(1, 3*time.Second)
		time.Sleep(5 * time.Second)
		calls, _ := n[0].calls()
		if last := calls[len(calls)-1].Asks[0]; last.Limit != 1 || last.Have != 1 {
			t.Errorf("%+v", last)
		}
	})
}

// A lease lasts its time to live from when its call was sent, because the origin may have granted its slot then.
func TestALeaseLastsFromItsCallOn(t *testing.T) {
	fleet(t, 1, func(t *testing.T, _ *memstore.Origin, n []*node) {
		began := time.Now()
		n[0].way.Faults.Delay(100 * time.Millisecond)
		r := n[0].waitFor(time.Second, 1, 2*time.Second)
		if !r.Granted || time.Since(began) < 100*time.Millisecond {
			t.Fatalf("after %v: %+v", time.Since(began), r)
		}
		n[0].way.Faults.Fail(errors.New("away"))
		time.Sleep(2*time.Second - time.Since(began))
		if err := r.Lease.Err(); !errors.Is(err, slots.ErrLost) {
			t.Errorf("2 s after its call was sent: %v", err)
		}
	})
}

// If a call states a shorter time to live than the call before, all of the node's leases end after that time, even if
// its answer is lost, because the origin may have applied it.
func TestALostAnswerShortensLeases(t *testing.T) {
	fleet(t, 2, func(t *testing.T, _ *memstore.Origin, n []*node) {
		long := n[0].try(2, 10*time.Second)
		if !long.Granted {
			t.Fatalf("%+v", long)
		}
		n[0].way.Faults.LoseReplies(true)
		if r := n[0].try(2, time.Second); r.Granted {
			t.Fatalf("%+v", r)
		}
		n[0].way.Faults.Fail(errors.New("away"))
		for range 2 {
			if r := n[1].waitFor(3*time.Second, 2, time.Minute); !r.Granted {
				t.Errorf("%+v", r)
			}
		}
		if err := long.Lease.Err(); !errors.Is(err, slots.ErrLost) {
			t.Errorf("two others hold leases of two: %v", err)
		}
	})
}

// A clock reading from some milliseconds ago is good enough to grant a slot that is free for long. Ends and refusals
// need the exact time.
func TestARecentReadingChangesNothing(t *testing.T) {
	var now, exact time.Duration
	late := 30 * time.Millisecond
	table := slots.New(slots.Config{Now: func() time.Duration { exact++; return now },
		Recent: func() time.Duration { return now - late }})
	now = time.Minute
	try := func(limit int64, unattended bool) slots.Result {
		a := ask(limit, time.Second)
		a.Unattended = unattended
		return table.Try(t.Context(), a)
	}
	if r := try(3, false); !r.Granted || exact != 0 {
		t.Errorf("the key's first lease: %+v, and %d exact readings", r, exact)
	}
	if r := try(3, false); !r.Granted || exact != 0 {
		t.Errorf("a free slot: %+v, and %d exact readings", r, exact)
	}
	short := try(3, true)
	if now += time.Second - 1; short.Lease.Err() != nil {
		t.Error("the lease has ended too early")
	}
	if r := try(3, false); r.Granted {
		t.Errorf("before the end: %+v", r)
	}
	now++
	if r := try(3, false); !r.Granted || r.Held != 3 {
		t.Errorf("at the end: %+v", r)
	}
}
