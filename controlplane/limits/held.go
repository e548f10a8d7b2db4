package limits

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/heartbeat"
)

// HeldReport merges nodes' reports of held leases and reservations.
type HeldReport struct {
	Reports
	Held []Held // longest first
}

// Held is a lease, or the part of a reservation that belongs to a key.
type Held struct {
	Kind                             string // heartbeat.HeldLease or heartbeat.HeldReservation
	Workspace, Namespace, Identifier string
	Holder, Region, Node             string
	SinceMs, EndsMs                  int64 // Unix ms; EndsMs 0: not before it is released
	Amount                           int64
}

// ListHeld merges live nodes' reports of the leases and reservations that are held longest. Each node reports at most
// its oldest 20, so missing entries are younger than these. If several nodes report the same entry, the list has it
// once, from the node with the latest end.
func ListHeld(ctx context.Context, store TopStore, q TopQuery,
	liveWithin time.Duration) (answer HeldReport, err error) {
	if err := q.Validate(); err != nil {
		return answer, err
	}
	found := make(map[heldID]Held)
	report := 0
	answer.Reports, err = readReports(ctx, store, liveWithin, func(r *TopReport, top *heartbeat.Top, _ time.Time) {
		report++
		for n := range top.Held {
			h := heldOf(&top.Held[n], r)
			id := heldID{region: r.Region, kind: h.Kind, workspace: h.Workspace, namespace: h.Namespace,
				identifier: h.Identifier, mark: top.Held[n].Mark}
			if id.mark == 0 {
				id.report, id.place = report, n
			}
			if is, known := found[id]; q.wants(h.Workspace, h.Namespace, h.Identifier) && (!known || h.EndsMs > is.EndsMs) {
				found[id] = h
			}
		}
	})
	if err != nil {
		return answer, fmt.Errorf("list held leases and reservations: %w", err)
	}
	answer.Held = slices.SortedFunc(maps.Values(found), longest)
	answer.Held = answer.Held[:min(len(answer.Held), q.Limit)]
	return answer, nil
}

// heldID identifies an entry of several reports. A reservation of several keys has an entry for each key.
type heldID struct {
	region, kind, workspace, namespace, identifier string
	mark                                           uint64
	report, place                                  int // of an entry that only this node reports
}

func heldOf(h *heartbeat.Held, r *TopReport) Held {
	return Held{Kind: h.Kind, Workspace: string(h.Workspace), Namespace: string(h.Namespace),
		Identifier: string(h.Identifier), Holder: string(h.Holder), Region: r.Region, Node: r.Node,
		SinceMs: h.SinceMs, EndsMs: h.EndsMs, Amount: h.Amount}
}

func longest(a, b Held) int {
	return cmp.Or(cmp.Compare(a.SinceMs, b.SinceMs), strings.Compare(a.Workspace, b.Workspace),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Identifier, b.Identifier),
		strings.Compare(a.Region, b.Region), strings.Compare(a.Node, b.Node), strings.Compare(a.Holder, b.Holder),
		cmp.Compare(a.EndsMs, b.EndsMs))
}
