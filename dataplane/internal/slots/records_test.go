package slots

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

// The heap of ends and the shortest time to live agree with a search of all records, whatever happens to the leases. A
// lease ends at its end and not before.
func TestRecordsAgreeWithAWalk(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		now := time.Second
		table := New(Config{Now: func() time.Duration { return now }})
		ask := Ask{Name: Name{"w", "n", "i"}, Limit: 500}
		held := make(map[Lease]time.Duration) // the end of each
		for range 3000 {
			switch ask.TTL = time.Duration(1+r.IntN(20)) * time.Second; r.IntN(5) {
			case 0, 1:
				ask.Unattended, ask.AgeMax = r.IntN(2) == 0, time.Duration(r.IntN(2)*r.IntN(30))*time.Second
				if got := table.Try(context.Background(), &ask); got.Granted {
					ends := forever
					switch {
					case ask.Unattended:
						ends = now + ask.TTL
					case ask.AgeMax > 0:
						ends = now + ask.AgeMax
					}
					held[got.Lease] = ends
				}
			case 2:
				now += time.Duration(r.IntN(3000)) * time.Millisecond
			default:
				for l, ends := range held {
					if r.IntN(3) == 0 {
						l.Release()
						delete(held, l)
					} else if l.Renew(ask.TTL) != (now < ends) {
						t.Fatalf("seed %d: renewed at %v, and its end was %v", seed, now, ends)
					} else if rec := l.record(); rec != nil && !rec.attended {
						held[l] = max(ends, now+ask.TTL)
					}
					break
				}
			}
			for l, ends := range held {
				if over := l.Err() != nil; over != (now >= ends) {
					t.Fatalf("seed %d: at %v a lease that ends at %v has ended: %v", seed, now, ends, over)
				}
				if now >= ends {
					delete(held, l)
				}
			}
			e := table.stripeOf(&ask.Name).entries[ask.Name]
			if e == nil {
				continue
			}
			e.expire(table.now())
			if int(e.busy) != len(held) {
				t.Fatalf("seed %d: %d are held, want %d", seed, e.busy, len(held))
			}
			first, shortest := forever, forever
			for i := range e.records {
				if rec := &e.records[i]; rec.live {
					first, shortest = min(first, rec.deadline), min(shortest, rec.ttl)
				}
			}
			if e.firstEnd() != first || e.shortestTTL() != shortest {
				t.Fatalf("seed %d: the first ends at %v, want %v; the shortest time to live is %v, want %v", seed,
					e.firstEnd(), first, e.shortestTTL(), shortest)
			}
		}
	}
}

// With many leases, the shortest time to live is not computed at each end. Once as many leases have ended as are live,
// it is right.
func TestTheShortestTimeToLiveComesBack(t *testing.T) {
	table := New(Config{})
	ask := Ask{Name: Name{"w", "n", "i"}, Limit: 1e6, TTL: time.Minute}
	var leases []Lease
	for range 3 * exactMax {
		leases = append(leases, table.Try(context.Background(), &ask).Lease)
	}
	ask.TTL = time.Second
	short := table.Try(context.Background(), &ask).Lease
	e := short.e
	for i, want := range []time.Duration{time.Second, time.Minute} {
		if got := e.shortestTTL(); got != want {
			t.Errorf("%d: %v, want %v", i, got, want)
		}
		short.Release()
		for _, l := range leases[:2*exactMax] {
			l.Release()
		}
	}
}

// A full table makes room for a new key as soon as others are idle, and a call looks at few of them.
func TestAFullTableMakesRoom(t *testing.T) {
	const keys = 20 * sweepMax
	table := New(Config{EntriesMax: keys})
	leases := make([]Lease, keys-sweepMax)
	for i := range leases {
		r := table.Try(context.Background(), &Ask{Name: Name{"w", strconv.Itoa(i % 1000), strconv.Itoa(i)}, Limit: 1,
			TTL: time.Minute})
		if !r.Granted {
			t.Fatalf("key %d: %+v", i, r)
		}
		leases[i] = r.Lease
	}
	for i := 0; table.Try(context.Background(), &Ask{Name: Name{"w", strconv.Itoa(i % 1000), fmt.Sprint("more ", i)},
		Limit: 1, TTL: time.Minute}).Granted; i++ {
	}
	next := func(i int) Result {
		return table.Try(context.Background(), &Ask{Name: Name{"w", strconv.Itoa(i), fmt.Sprint("new ", i)}, Limit: 1, TTL: time.Minute})
	}
	if r := next(0); !errors.Is(r.Err, ErrFull) {
		t.Errorf("%+v", r)
	}
	for _, l := range leases[:keys/2] {
		l.Release()
	}
	for i := range 100 {
		if r := next(i); !r.Granted {
			t.Fatalf("new key %d: %+v", i, r)
		}
	}
	if left := table.keys.Used(); left < keys-20*sweepMax*3/4 {
		t.Errorf("%d keys are left of %d", left, keys)
	}
}

// However many namespaces flood a node with keys, another namespace finds room.
func TestAFloodOfKeysLeavesOthersRoom(t *testing.T) {
	const keys = 10_000
	table := New(Config{EntriesMax: keys})
	hold := func(namespace string, i int) bool {
		return table.Try(context.Background(), &Ask{Name: Name{"w", namespace, strconv.Itoa(i)}, Limit: 1,
			TTL: time.Minute}).Granted
	}
	for flood := range 3 {
		n := 0
		for hold(strconv.Itoa(flood), n) {
			n++
		}
		if n == 0 {
			t.Errorf("flood %d finds no room", flood)
		}
	}
	for i := range 20 {
		if !hold("victim", i) {
			t.Fatalf("key %d of another namespace finds no room beside %d", i, table.keys.Used())
		}
	}
}
