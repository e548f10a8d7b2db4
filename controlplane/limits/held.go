package limits

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
	"github.com/weirhq/weir/shared/workspaces"
)

// HeldMax is the most that one listing of what is held has.
const HeldMax = 100

// HeldQuery asks for what is held.
type HeldQuery struct {
	Workspace, Namespace, Identifier string // "" for all
	Limit                            int    // 1 to HeldMax

	Visible *workspaces.Set // reservations of other workspaces are left out
}

// Validate reports the first field outside its bounds.
func (q HeldQuery) Validate() error {
	switch {
	case len(q.Identifier) > window.IdentifierBytesMax:
		return fmt.Errorf("%w: identifier is %d bytes long (at most %d)", controlplane.ErrInvalid, len(q.Identifier),
			window.IdentifierBytesMax)
	case q.Limit < 1 || q.Limit > HeldMax:
		return fmt.Errorf("%w: limit is %d (1 to %d)", controlplane.ErrInvalid, q.Limit, HeldMax)
	}
	return TopQuery{Workspace: q.Workspace, Namespace: q.Namespace, Limit: 1}.Validate()
}

// HeldReport is what nodes report to be held, merged.
type HeldReport struct {
	Now        time.Time // by the clock of the database
	Held       []Held    // longest first
	Nodes      int       // that reported
	Unreadable int       // nodes whose report could not be read, in whole or in part
	Truncated  bool      // there are more than TopReportsMax
	Oldest     time.Duration
}

// Held is a lease, or a reservation's part of one key.
type Held struct {
	Kind                             string // heartbeat.HeldLease or heartbeat.HeldReservation
	Workspace, Namespace, Identifier string
	Holder, Region, Node             string
	SinceMs, EndsMs                  int64 // Unix ms; EndsMs 0: not before it is released
	Amount                           int64
}

// ListHeld merges what live nodes report to be held longest. Each reports no more than its oldest 20, so what is
// missing is younger than those. What several nodes have to do with is told once, by the node that knows of the latest
// end.
func ListHeld(ctx context.Context, store TopStore, q HeldQuery, liveWithin time.Duration) (HeldReport, error) {
	if err := q.Validate(); err != nil {
		return HeldReport{}, err
	}
	now, reports, err := store.TopReports(ctx, liveWithin, TopReportsMax+1)
	if err != nil {
		return HeldReport{}, fmt.Errorf("list what is held: %w", err)
	}
	answer := HeldReport{Now: now, Truncated: len(reports) > TopReportsMax}
	found := make(map[heldID]Held)
	for i, r := range reports[:min(len(reports), TopReportsMax)] {
		top, err := heartbeat.ReadTop(r.Document)
		if err != nil {
			answer.Unreadable++
			continue
		}
		answer.Nodes++
		if top.Unread > 0 {
			answer.Unreadable++
		}
		answer.Oldest = max(answer.Oldest, now.Sub(r.madeAt(&top)))
		for n := range top.Held {
			h := heldOf(&top.Held[n], &r)
			id := heldID{region: r.Region, kind: h.Kind, workspace: h.Workspace, namespace: h.Namespace,
				identifier: h.Identifier, mark: top.Held[n].Mark}
			if id.mark == 0 {
				id.report, id.place = i+1, n
			}
			if is, known := found[id]; q.wants(&h) && (!known || h.EndsMs > is.EndsMs) {
				found[id] = h
			}
		}
	}
	for _, h := range found {
		answer.Held = append(answer.Held, h)
	}
	slices.SortFunc(answer.Held, longest)
	answer.Held = answer.Held[:min(len(answer.Held), q.Limit)]
	return answer, nil
}

// heldID tells what is held apart. A reservation of several keys has a part of each.
type heldID struct {
	region, kind, workspace, namespace, identifier string
	mark                                           uint64
	report, place                                  int // of what no other node knows of
}

func heldOf(h *heartbeat.Held, r *TopReport) Held {
	return Held{Kind: h.Kind, Workspace: string(h.Workspace), Namespace: string(h.Namespace),
		Identifier: string(h.Identifier), Holder: string(h.Holder), Region: r.Region, Node: r.Node,
		SinceMs: h.SinceMs, EndsMs: h.EndsMs, Amount: h.Amount}
}

func (q *HeldQuery) wants(h *Held) bool {
	return q.Visible.Has(h.Workspace) && (q.Workspace == "" || q.Workspace == h.Workspace) &&
		(q.Namespace == "" || q.Namespace == h.Namespace) && (q.Identifier == "" || q.Identifier == h.Identifier)
}

func longest(a, b Held) int {
	return cmp.Or(cmp.Compare(a.SinceMs, b.SinceMs), strings.Compare(a.Workspace, b.Workspace),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Identifier, b.Identifier),
		strings.Compare(a.Region, b.Region), strings.Compare(a.Node, b.Node), strings.Compare(a.Holder, b.Holder),
		cmp.Compare(a.EndsMs, b.EndsMs))
}
