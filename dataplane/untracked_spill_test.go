package dataplane

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/shared/window"
)

const spillSeq = int64(1000)

func spillMs() int64 { return window.Start(spillSeq, time.Minute.Milliseconds()) }

// untrackedLimiter returns a limiter with an origin, and one of its untracked keys in the current cell.
func untrackedLimiter(t *testing.T, change ...func(*Config)) (*Limiter, *cell.Entry) {
	t.Helper()
	now := time.UnixMilli(spillMs())
	cfg := Config{Region: "eu", NodeID: "a", Clock: func() time.Time { return now },
		Origin: memstore.NewOrigin(memstore.OriginOptions{Clock: func() time.Time { return now }})}
	for _, f := range change {
		f(&cfg)
	}
	l, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	id := l.engine.table.IdentityOfKey(&key, nil)
	e, _ := l.engine.table.AddUntracked(&id, &key, nil, false, l.engine.table.Horizon(false), spillSeq)
	return l, e
}

// If the claimed cell ends before the batch is decided, the claimed cost becomes credit in that cell.
func TestAClaimOfTheCellBeforeBecomesCredit(t *testing.T) {
	_, e := untrackedLimiter(t)
	e.Charge(spillSeq, 4, 100)
	it := item{entry: e, claimed: cell.Claimed{Sequence: spillSeq, Cost: 4}}
	var next cell.Verdict
	later := cell.NewTable(1, 0, clock.New(nil), true).Horizon(false)
	e.Judge(&next, later, spillMs()+time.Minute.Milliseconds(), time.Minute.Milliseconds(), 100, 0, false)
	it.keepClaim(cell.NewClaim(e, &next, 100, 2, false, false))
	it.keepClaim(cell.NewClaim(e, &next, 100, 1, false, false))
	if got := e.LookAt(spillSeq).Credit; got != 4 || it.claimed != (cell.Claimed{Sequence: spillSeq + 1, Cost: 3}) {
		t.Errorf("credit %d; claimed %+v", got, it.claimed)
	}
}

// A key without room that is always being decided keeps its untracked entry. If the clock is corrected, the key
// follows the clock, and its cost still counts.
func TestAClockPutRightLocksNoUntrackedKeyOut(t *testing.T) {
	for _, origin := range []bool{false, true} {
		var ms atomic.Int64
		ms.Store(spillMs() + 24*time.Hour.Milliseconds())
		wall := func() time.Time { return time.UnixMilli(ms.Load()) }
		cfg := Config{Region: "eu", NodeID: "a", Clock: wall}
		if origin {
			cfg.Origin = memstore.NewOrigin(memstore.OriginOptions{Clock: wall})
		}
		l, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
		id := l.engine.table.IdentityOfKey(&key, nil)
		l.engine.table.AddUntracked(&id, &key, nil, false, l.engine.table.Horizon(false), window.Sequence(l.engine.clock.ReadMs(), 60_000)) // a use that does not end
		r := Request{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute, Limit: 10, Cost: 9}
		if d := l.Allow(t.Context(), r); !d.Allowed {
			t.Fatalf("origin %v: %+v", origin, d)
		}
		ms.Store(spillMs())
		r.Cost = 2
		for how, d := range map[string]Decision{"single": l.Allow(t.Context(), r),
			"batch": l.AllowMany(t.Context(), []Request{r}).Decisions[0]} {
			if d.Allowed || d.ResetAt.After(wall().Add(time.Minute)) {
				t.Errorf("origin %v, %s: 9 of 10 were counted a moment ago: %+v", origin, how, d)
			}
		}
		ms.Add(2 * time.Minute.Milliseconds())
		if d := l.Allow(t.Context(), r); !d.Allowed {
			t.Errorf("origin %v: two windows later: %+v", origin, d)
		}
		l.AwaitCalls()
	}
}
