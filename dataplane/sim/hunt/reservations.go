package hunt

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/sim/hunt/internal/plan"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// heldNamespace has the keys of reservations. No operator changes it.
const heldNamespace = "held"

// heldRules returns the settings of the namespaces of reservations and leases.
func heldRules(f Fleet) (rows []store.NamespaceRow) {
	if !f.Closed {
		return nil
	}
	for _, name := range []string{heldNamespace, slotsNamespace} {
		rows = append(rows, store.NamespaceRow{Workspace: workspace, Namespace: name, Outage: "closed"})
	}
	return rows
}

// reservations records reservations by id from the callers' view, outside of limiters and origins. Of each it has the
// least and the most that it may count at any moment.
type reservations struct {
	world *world

	mu    sync.Mutex
	all   []*reservation
	asks  []*attempt // that are under way
	cells map[heldCell]*heldCount
}

// heldCell is a cell at a region's origin.
type heldCell struct {
	region *region
	cell   window.Cell
}

// heldCount is how much reservations have counted in a cell, together.
type heldCount struct {
	least int64 // at some moment, for certain
	most  int64 // at any moment
	back  int64 // the part of most that nodes may restore to an origin that has lost data: includes cost returned before
	wrong bool  // the origin's count was found wrong; reported once
}

// reservation is the record of a reservation's id.
type reservation struct {
	id       string
	number   int
	region   *region
	attempts []*attempt

	acked    *attempt  // the first that was answered
	made     time.Time // when that was
	lost     bool      // the origin has lost data since the first request
	emptied  bool      // it has forgotten all
	lostAt   time.Time // when it has forgotten something last
	callers  []*life   // of all calls about it
	local    bool      // in an outage a node has reserved by itself
	closed   bool      // a call that may end it has begun
	closedAt time.Time // when it was first settled or cancelled, perhaps without effect

	least, most Costs     // spent
	settled     bool      // for certain
	final       Costs     // of it
	words       bool      // its final cost has reached the origin
	endsAt      time.Time // by the origin's clock, from the last answer
	ends        time.Time // it goes on until then
	over        time.Time // it has ended then
	unheard     int       // calls that are under way, or had no answer
}

// attempt is a request for a reservation.
type attempt struct {
	of       *reservation
	by       *life
	step     Step
	began    time.Time
	returned time.Time // zero: no answer yet
	clean    bool      // all calls to the origin were answered
	over     bool      // it was answered that its reservation is over: it, or a repeated call of it, may have made that
	cells    [plan.CostsMax][]window.Cell
	room     [plan.CostsMax]map[window.Cell]int64 // the most that the limit left in its cells at each moment
}

func (r *reservation) String() string { return r.id }

// of returns the reservation of a step's id. The mutex is held.
func (g *reservations) of(s Step) *reservation {
	for _, r := range g.all {
		if r.id == s.Name() {
			return r
		}
	}
	r := &reservation{id: s.Name(), number: s.ID, region: g.world.regions[s.Region]}
	g.all = append(g.all, r)
	return r
}

// slack returns how far the end of a hold may be from the callers' reckoning, because clocks of nodes differ and
// messages take time.
func (g *reservations) slack() time.Duration {
	slack := 2*clockBound + time.Second
	for _, s := range g.world.plan.Steps {
		if s.Do == Clock {
			slack += s.Delay.Abs()
		}
	}
	if !g.world.plan.Fails() {
		slack = 4*g.world.plan.Fleet.OriginTrip + 100*time.Millisecond
	}
	return slack
}

// origins returns the time of a region's origin.
func (g *reservations) origins(r *region, t time.Time) time.Time {
	return t.Add(g.world.plan.Fleet.Ahead[r.index])
}

// answersSince reports whether a life is there, and all of its calls have been answered since some seconds before a
// time: a node may make no calls to an origin that has not answered.
func (l *life) answersSince(began time.Time) bool {
	const alone = 5 * time.Second
	return !l.ended.Load() && l.ToOrigin.WorksSince(began.Add(-alone))
}

// cellsOf sets the cells that an attempt may be in: its node's clock decides.
func (g *reservations) cellsOf(a *attempt) {
	for i := range a.step.Items() {
		k := g.world.plan.Fleet.HeldKey(a.step.Key, i)
		key := window.Key{Workspace: workspace, Namespace: heldNamespace, Identifier: k.Name, Duration: k.Duration}
		from := window.Sequence(g.origins(a.of.region, a.began.Add(-g.slack())).UnixMilli(), k.Duration.Milliseconds())
		to := window.Sequence(g.origins(a.of.region, a.began.Add(g.slack())).UnixMilli(), k.Duration.Milliseconds())
		a.room[i] = make(map[window.Cell]int64)
		for n := from; n <= to; n++ {
			cell := window.Cell{Key: key, Sequence: n}
			a.cells[i], a.room[i][cell] = append(a.cells[i], cell), math.MinInt64
		}
	}
}

// itemsOf returns how many keys the reservation of an ID has. A call about a reservation may begin before the first
// request for it, and still find it.
func (g *reservations) itemsOf(id int) int {
	for _, s := range g.world.plan.Steps {
		if s.Do == Hold && s.ID == id {
			return len(s.Items())
		}
	}
	return 1 // no step requests it
}

func (g *reservations) requests(s Step) (requests []dataplane.Request) {
	for i, cost := range s.Items() {
		k := g.world.plan.Fleet.HeldKey(s.Key, i)
		requests = append(requests, dataplane.Request{
			Workspace: workspace, Namespace: heldNamespace, Identifier: k.Name, Limit: k.Limit, Duration: k.Duration, Cost: cost,
		})
	}
	return requests
}

// hold requests a reservation.
func (g *reservations) hold(l *life, s Step) {
	a := &attempt{by: l, step: s, began: time.Now()}
	g.mu.Lock()
	r := g.of(s)
	a.of = r
	r.callers = append(r.callers, l)
	r.attempts = append(r.attempts, a)
	r.unheard++
	g.cellsOf(a)
	g.asks = append(g.asks, a)
	g.count()
	g.mu.Unlock()
	out := l.Limiter.Reserve(context.Background(), dataplane.ReserveRequest{
		ID: r.id, Requests: g.requests(s), TTL: s.After, Returned: s.Returned,
	})
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.count()
	defer func() { g.asks = slices.DeleteFunc(g.asks, func(other *attempt) bool { return other == a }) }()
	if l.ended.Load() {
		g.alone(a, &out)
		return // its caller has ended with it
	}
	g.count() // as it is under way
	a.returned, a.clean = time.Now(), l.answersSince(a.began)
	if a.clean {
		r.unheard--
	}
	g.world.record.note("%v  %v of %v: allowed %t, ends %v (%v)", l, r, s.Costs, out.Allowed,
		out.EndsAt.UnixMilli(), out.Err)
	g.heard(l, a, &out)
}

// placed returns the cell that an item of an attempt was decided in.
func (a *attempt) placed(item int, d *dataplane.Decision) (cell window.Cell, placed bool) {
	if d.ResetAt.IsZero() || d.Duration == 0 {
		return window.Cell{}, false
	}
	cell = a.cells[item][0]
	cell.Sequence = d.ResetAt.UnixMilli()/d.Duration.Milliseconds() - 1
	return cell, true
}

// mayBeAlone reports whether a node may have reserved by itself, in an outage. It sends the cost before its caller has
// the answer.
func (a *attempt) mayBeAlone() bool {
	return a.of.local || a.returned.IsZero() && !a.by.answersSince(a.began)
}

// alone records a decision that a node made without its origin. The node makes it some seconds after the request, maybe
// in a later cell. A node that is stopped meanwhile sends the cost as well, although its caller never has the answer.
func (g *reservations) alone(a *attempt, out *dataplane.Reserved) {
	for i := range out.Decisions {
		d := &out.Decisions[i]
		if !d.Source.Degraded() {
			continue
		}
		a.of.local = a.of.local || out.Allowed
		if cell, placed := a.placed(i, d); placed && !slices.Contains(a.cells[i], cell) {
			a.cells[i] = append(a.cells[i], cell)
		}
	}
}

// heard records the answer to an attempt.
func (g *reservations) heard(l *life, a *attempt, out *dataplane.Reserved) {
	r := a.of
	g.alone(a, out)
	for i := range out.Decisions {
		d := &out.Decisions[i]
		cell, placed := a.placed(i, d)
		if !placed || d.Source.Degraded() {
			continue
		}
		if !slices.Contains(a.cells[i], cell) {
			g.violate("id", "%v reserves %v in %s", l, r, cellName(cell))
		}
		a.cells[i] = []window.Cell{cell}
	}
	keeps := !r.lost && !r.local
	switch {
	case out.Err != nil:
		used := errors.Is(out.Err, dataplane.ErrReservationUsed)
		differ := slices.ContainsFunc(r.attempts, func(other *attempt) bool { return !other.same(a) })
		a.over = errors.Is(out.Err, dataplane.ErrReservationOver)
		if a.clean && keeps && !(a.over && !g.open(r)) && (!used || !differ) {
			g.violate("id", "%v reserves %v, which gets no answer: %v", l, r, out.Err)
		}
		return
	case r.local || !out.Allowed:
		if a.clean && keeps && r.acked != nil && !r.acked.returned.After(a.began) && a.same(r.acked) && g.open(r) {
			g.violate("id", "%v reserves %v again, which is refused", l, r)
		}
		return
	}
	if r.acked == nil {
		r.acked, r.made = a, a.returned
		first := r.attempts[0].began
		r.ends, r.over = first.Add(a.step.After-g.slack()), a.returned.Add(a.step.After+g.slack())
		if len(r.attempts) == 1 && a.clean {
			r.ends = a.began.Add(a.step.After)
		}
		r.endsAt = out.EndsAt
		g.granted(l, a)
		return
	}
	if keeps && !a.same(r.acked) {
		g.violate("id", "%v reserves %v for %v, and it is there for %v", l, r, a.step.Costs, r.acked.step.Costs)
	}
}

// same reports whether two attempts make the same request.
func (a *attempt) same(b *attempt) bool {
	return a.step.Costs == b.step.Costs && a.step.Returned == b.step.Returned
}

// sameCells reports whether two attempts have certainly been made in the same cells.
func (a *attempt) sameCells(b *attempt) bool {
	for i := range a.cells {
		if len(a.cells[i]) > 1 || !slices.Equal(a.cells[i], b.cells[i]) {
			return false
		}
	}
	return true
}

// open reports whether a reservation cannot have ended yet.
func (g *reservations) open(r *reservation) bool { return !r.closed && time.Now().Before(r.ends) }

// granted compares an origin's grant with the cost that the limit left. The mutex is held.
func (g *reservations) granted(l *life, a *attempt) {
	if len(a.of.attempts) > 1 {
		return // another attempt may have been granted, at another moment
	}
	for i, cost := range a.step.Items() {
		if cell := a.cells[i][0]; cost > a.room[i][cell] {
			g.violate("held", "%v reserves %d of %s for %v, and at most %d are left", l, cost, cellName(cell), a.of,
				a.room[i][cell])
		}
	}
}

// close records that a reservation may be settled from now on.
func (r *reservation) close(at time.Time) {
	if !r.closed {
		r.closed, r.closedAt = true, at
	}
}

// mayBeForgotten reports whether a reservation may have ended, or been settled, so long ago that its origin has
// forgotten its id. Clocks may differ.
func (r *reservation) mayBeForgotten() bool {
	const kept = store.HoldKeptFor - 15*time.Second
	return time.Since(r.ends) > kept || r.closed && time.Since(r.closedAt) > kept
}

// change makes another call about a reservation.
func (g *reservations) change(l *life, s Step) {
	began := time.Now()
	g.mu.Lock()
	r := g.of(s)
	costs := slices.Clone(s.Costs[:g.itemsOf(s.ID)])
	before, known, endsAt := r.least, r.settled, r.endsAt // by calls that were answered before this call began
	acked := r.acked != nil && !r.lost && !r.local
	r.callers = append(r.callers, l)
	r.unheard++
	alone := r.unheard == 1
	switch s.Do {
	case SpendHold, SettleHold:
		for i, cost := range costs {
			r.most[i] = max(r.most[i], cost)
		}
		if s.Do == SettleHold {
			r.close(began)
		}
	case CancelHold:
		r.close(began)
	case ExtendHold:
		r.over = latest(r.over, began.Add(s.After+g.slack()+5*time.Second))
	}
	g.count()
	g.mu.Unlock()
	var is dataplane.Settlement
	var err error
	ctx := context.Background()
	switch s.Do {
	case SpendHold:
		is, err = l.Limiter.Spend(ctx, r.id, costs...)
	case SettleHold:
		is, err = l.Limiter.Settle(ctx, r.id, costs...)
	case CancelHold:
		is, err = l.Limiter.Cancel(ctx, r.id)
	default:
		is, err = l.Limiter.Extend(ctx, r.id, s.After)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	defer g.count()
	if l.ended.Load() {
		return
	}
	clean := l.answersSince(began)
	if clean {
		r.unheard--
	}
	g.world.record.note("%v  %v %s %v: %+v (%v)", l, r, s.Do, s.Costs, is, err)
	if r.lost || r.local {
		return
	}
	if err != nil {
		none := errors.Is(err, dataplane.ErrNoReservation)
		if none && r.mayBeForgotten() {
			return
		}
		if acked && (none || clean) || clean && !none {
			g.violate("id", "%v makes a call about %v, which is there: %v", l, r, err)
		}
		return
	}
	for i, spent := range is.Spent {
		if spent < before[i] || spent > r.most[i] {
			g.violate("id", "%v says that %d of item %d of %v were spent: %d to %d were", l, spent, i, r, before[i], r.most[i])
		}
		if !is.Late && i < len(costs) && spent < costs[i] && s.Do != CancelHold && s.Do != ExtendHold {
			g.violate("id", "%v takes %d of item %d of %v for spent, and says that %d were", l, costs[i], i, r, spent)
		}
	}
	now := g.origins(r.region, time.Now())
	switch {
	case !is.Late && (s.Do == SettleHold || s.Do == CancelHold) != is.Settled:
		g.violate("id", "%v: a %s of %v has settled it: %t", l, s.Do, r, is.Settled)
	case known && (!is.Late || !is.Settled):
		g.violate("id", "%v changes %v, which was settled: %+v", l, r, is)
	case is.Late && !is.Settled && is.EndsAt.After(now):
		g.violate("id", "%v takes %v for ended before its end", l, r)
	case !is.Late && s.Do != ExtendHold && !is.EndsAt.After(g.origins(r.region, began)):
		g.violate("id", "%v changes %v after its end", l, r)
	case !is.Late && s.Do == ExtendHold && is.EndsAt.Before(g.origins(r.region, began).Add(s.After-time.Millisecond)):
		g.violate("id", "%v extends %v by %v, to %v", l, r, s.After, is.EndsAt)
	case is.EndsAt.Before(endsAt):
		g.violate("id", "%v has %v end earlier than it was said to", l, r)
	}
	for i, spent := range is.Spent {
		if r.settled && r.final[i] != spent {
			g.violate("id", "%v says that %v has settled at %v, and it was %v", l, r, is.Spent, r.final)
		}
		if is.Settled {
			r.final[i] = spent
		}
		if clean && (is.Settled || alone && r.unheard == 0) {
			r.least[i] = max(r.least[i], spent)
		}
	}
	r.settled = r.settled || is.Settled
	if is.Settled {
		r.close(began)
	}
	r.words = r.words || is.Settled && clean
	if s.Do == ExtendHold && !is.Late && r.acked != nil {
		r.endsAt = latest(r.endsAt, is.EndsAt)
		at := is.EndsAt.Add(-g.world.plan.Fleet.Ahead[r.region.index])
		r.over = latest(r.over, at.Add(g.slack()))
		if clean && alone && r.unheard == 0 {
			r.ends = latest(r.ends, at.Add(-g.slack()))
		}
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// violate records a broken invariant.
func (g *reservations) violate(invariant, format string, args ...any) {
	g.world.record.violate(invariant, format, args...)
}
