package permits

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/held"
	"github.com/weirhq/weir/dataplane/internal/loop"
	"github.com/weirhq/weir/dataplane/internal/outbox"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/dataplane/internal/slots"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const readTimeout = time.Second

// counter is an engine that keeps the keys of refusals.
type counter struct{ refused []window.Key }

func (c *counter) Refused(key window.Key, _ *window.Reset, _ int64) {
	c.refused = append(c.refused, key)
}

func (c *counter) Counted(*window.Cell, *window.Reset) int64 { return 0 }

func (c *counter) Absorb(*outbox.Shard, *window.Cell, *window.Reset, *store.Total, int64) {}

// alone returns the permits of a node without an origin.
func alone(t *testing.T) (p *Permits, of *counter, calls *loop.Calls) { return beside(t, nil) }

// beside returns the permits of a node with an origin, or without an origin if it is nil.
func beside(t *testing.T, origin Origin) (p *Permits, of *counter, calls *loop.Calls) {
	of, calls = new(counter), new(loop.Calls)
	wall, in := clock.New(nil), new(rules.Rules)
	table := cell.NewTable(10, time.Minute.Milliseconds(), wall, false)
	in.Init(rules.Config{Clock: wall, Walk: table.Walk, Logger: slog.New(slog.DiscardHandler)})
	sends := outbox.Config{Rules: in, ReadTimeout: readTimeout, Table: table, Dirty: new(cell.DirtyList), Clock: wall,
		Calls: calls, Breaker: breaker.Config{FailureRatio: 1, CallsMin: 1000, Interval: time.Second, HalfOpenCalls: 1}}
	if origin != nil { // an interface of a nil interface is none
		sends.Origin = origin
	}
	p = new(Permits)
	p.Init(Config{Origin: origin, EntriesMax: 10, ReadTimeout: readTimeout, Clock: wall, Rules: in, Out: outbox.New(sends),
		Calls: calls, Engine: of})
	t.Cleanup(func() {
		p.Leases.End()
		calls.Stop()
		p.Reservations.Stop()
	})
	return p, of, calls
}

func TestARefusedLeaseIsADenialOfItsKey(t *testing.T) {
	p, of, _ := alone(t)
	ask := slots.Ask{Name: slots.Name{Workspace: "acme", Namespace: "jobs", Identifier: "k"}, Own: 1, TTL: time.Second}
	for i, granted := range []bool{true, false, false} {
		var r slots.Result
		p.Leases.Acquire(t.Context(), &ask, false, &r)
		if r.Granted != granted || len(of.refused) != i {
			t.Errorf("lease %d: granted %v, and %d denials", i, r.Granted, len(of.refused))
		}
	}
	if key := ask.Name.SlotsKey(); of.refused[0] != key {
		t.Errorf("%v was denied, and %v refused", of.refused[0], key)
	}
}

func TestAnIDOfAReservationIsBounded(t *testing.T) {
	p, _, _ := alone(t)
	for _, id := range []string{"", string(make([]byte, IDBytesMax+1))} {
		if _, _, err := p.Reservations.Change(t.Context(), id, held.Change{Settled: true}); !errors.Is(err, window.ErrInvalid) {
			t.Errorf("an id of %d bytes: %v", len(id), err)
		}
	}
	longest := string(make([]byte, IDBytesMax))
	if _, _, err := p.Reservations.Change(t.Context(), longest, held.Change{Settled: true}); !errors.Is(err, held.ErrNone) {
		t.Errorf("the longest id: %v", err)
	}
}
