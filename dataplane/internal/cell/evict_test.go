package cell

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/window"
)

// "nothing of it is queued, in flight or unsent": each reason for an entry to stay keeps it by
// itself, whichever key needs its place, and no longer than it lasts.
func TestWhatKeepsAnEntry(t *testing.T) {
	const seq, now = int64(1000), clock.SteadyStart
	var h Hasher
	h.Init()
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: "k", Duration: time.Minute}
	nowMs := window.Start(seq, key.DurationMs())
	current, previous := slotOf(seq), slotOf(seq-1)
	flag := func(f uint32) func(e *Entry) func() {
		return func(e *Entry) func() {
			e.flags.Or(f)
			return func() { e.flags.And(^f) }
		}
	}
	count := func(slot int) func(e *Entry) func() {
		return func(e *Entry) func() {
			e.lowerMinLimit(slot, 100)
			e.counter.add(slot, 1)
			return func() { e.Ledger().cells[slot].settled.Add(1) } // sent
		}
	}
	for name, keep := range map[string]func(e *Entry) (end func()){
		"dirty":                     flag(Dirty),
		"to be sent":                flag(flagInReplay),
		"to be sent at once":        flag(flagFlush),
		"to be restored":            flag(flagRestore << current),
		"being sent":                flag(flagSending << current),
		"being sent, previous cell": flag(flagSending << previous),
		"in a claim":                flag(flagClaiming << current),
		"in a claim, previous cell": flag(flagClaiming << previous),
		"to be synced":              flag(flagAsked),
		"unsent":                    count(current),
		"unsent, previous cell":     count(previous),
		"denied":                    flag(flagDenied << current),
		"denied, previous cell":     flag(flagDenied << previous),
		"held by a batch":           func(e *Entry) func() { e.Hold(anyTime, nowMs, key.DurationMs()); return func() { e.Release(0) } },
		"read":                      func(e *Entry) func() { e.flight.Store(NewFlight()); return func() { e.flight.Store(nil) } },
		"rests":                     func(e *Entry) func() { e.Reads().Rest(now); return func() { e.flight.Store(nil) } },
		"counted to half its limit": func(e *Entry) func() {
			e.lowerMinLimit(current, 100)
			e.Ledger().cells[current].settled.Add(e.counter.add(current, 50))
			return func() { e.counter.take(current, 1) }
		},
		"counted to half its limit elsewhere": func(e *Entry) func() {
			e.lowerMinLimit(current, 100)
			e.addOthers(current, 50)
			return func() { e.addOthers(current, -1) }
		},
	} {
		id := h.IdentityOfKey(&key, nil)
		e := newEntry(&id, h.NamesOf(&key, nil), seq, true, false)
		end := keep(e)
		if got := e.evict(anyTime, nowMs, now, 0, needRoom); got != stays {
			t.Errorf("%s: evicted", name)
			continue
		}
		end()
		if got := e.evict(anyTime, nowMs, now, 0, needRoom); got != goneIdle {
			t.Errorf("%s, and no more: %v", name, got)
		}
	}
}
