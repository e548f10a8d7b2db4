package cell

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/epochs"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Two nodes count two keys at an origin that loses its counts, in any history of sends, claims and reads. Calls and
// answers may be late, lost or repeated. After each step the entries agree with dumb cells. When all is answered, the
// origin has all cost that the nodes have accepted. It has more only for claims that a lost epoch had added, if their
// nodes can't find that out any more: see dumbCell.excess.
//
//weir:unraced
func TestAnyHistoryOfEpochsEndsWithWhatWasAccepted(t *testing.T) {
	for range 20 { // a history takes less than a millisecond
		rapid.Check(t, playEpochs)
	}
}

func playEpochs(rt *rapid.T) {
	r := newModelRegion()
	rt.Repeat(map[string]func(*rapid.T){
		"accept": func(rt *rapid.T) { r.node(rt).accept(rt) },
		"send":   func(rt *rapid.T) { r.node(rt).send(rt, rapid.Bool().Draw(rt, "epoch is known")) },
		"claim":  func(rt *rapid.T) { r.node(rt).claim(rt) },
		"read":   func(rt *rapid.T) { r.node(rt).read() },
		"leave":  func(rt *rapid.T) { r.node(rt).leave(rt) },
		"renew":  func(rt *rapid.T) { r.node(rt).renew() },
		"turn":   func(rt *rapid.T) { r.node(rt).turn(rt) },
		"arrive": r.arrive, "arrive too": r.arrive, "answer": r.answer, "answer too": r.answer, "lose": r.lose,
		"wipe": func(*rapid.T) { r.origin.wipe() },
		"":     r.check,
	})
	r.settle(rt)
}

const (
	modelKeys  = 2
	modelLimit = 60 // of claims; accepted cost has no limit
)

// modelRegion is the system whose histories the model checks.
type modelRegion struct {
	origin modelOrigin
	nodes  [2]*modelNode
	tries  []*try // that may arrive, or are answered and not merged
}

func newModelRegion() *modelRegion {
	r := &modelRegion{origin: modelOrigin{epoch: 1}}
	r.origin.wipe()
	var h Hasher
	h.Init()
	for i := range r.nodes {
		n := &modelNode{r: r, ended: make(map[store.Epoch]bool)}
		for k := range modelKeys {
			key := window.Key{Workspace: "acme", Namespace: "api", Identifier: string(rune('a' + k)), Duration: time.Minute}
			id := h.IdentityOfKey(&key, nil)
			e := newEntry(&id, h.NamesOf(&key, nil), ledgerSeq, true, false)
			e.NodeShare().Mark()
			n.keys = append(n.keys, [2]*dumbCell{{e: e, sequence: ledgerSeq}, {e: e, sequence: ledgerSeq + 1}})
		}
		r.nodes[i] = n
	}
	return r
}

func (r *modelRegion) node(rt *rapid.T) *modelNode {
	return rapid.SampledFrom(r.nodes[:]).Draw(rt, "node")
}

// modelOrigin counts as the contract of store.Origin has it.
type modelOrigin struct {
	epoch store.Epoch
	cells map[window.Cell]*modelTotal
	last  map[*modelStream]*try // applied in the epoch
}

type modelTotal struct{ add, restore, known int64 }

func (t *modelTotal) region() int64 { return t.add + max(t.restore, t.known) }

func (o *modelOrigin) wipe() {
	o.epoch++
	o.cells, o.last = make(map[window.Cell]*modelTotal), make(map[*modelStream]*try)
}

func (o *modelOrigin) cell(c window.Cell) *modelTotal {
	if o.cells[c] == nil {
		o.cells[c] = new(modelTotal)
	}
	return o.cells[c]
}

// apply applies the costs of a try, unless another try of the call was applied before.
func (o *modelOrigin) apply(t *try) {
	c := t.call
	if c.firstIn == 0 {
		c.firstIn = o.epoch
	}
	last := o.last[c.stream]
	again := last != nil && last.call == c
	for i, cost := range t.costs {
		at := o.cell(cost.Cell)
		bounded := c.claims != nil
		if of := cost.Epoch; of != 0 && of != o.epoch || of == 0 && !bounded && c.firstIn != o.epoch {
			t.totals = append(t.totals, store.Total{Epoch: o.epoch, Err: store.ErrEpoch})
			continue
		}
		added := false
		switch {
		case again:
			added = last.totals[i].Added
		case !bounded:
			at.add, at.restore, at.known = at.add+cost.Add, at.restore+cost.Restore, max(at.known, cost.Known)
		case at.region()+cost.Add <= cost.AtMost:
			at.add += cost.Add
			added, c.claims[i].added = true, true
		}
		t.totals = append(t.totals, store.Total{Region: at.region(), Epoch: o.epoch, Added: added})
	}
	o.last[c.stream] = t
}

// modelStream is a node's stream of chunks.
type modelStream struct{ call *modelCall } // that has no answer; nil: none

// modelCall is a chunk, or a read.
type modelCall struct {
	node    *modelNode
	stream  *modelStream // nil for a read
	costs   []store.Cost
	cells   []*dumbCell  // of the costs, or of a read
	claims  []*dumbClaim // of the costs
	firstIn store.Epoch  // in which it was first sent, as far as the sender has received epochs
	try     *try         // under way; nil: it was given up
}

// try is an attempt to make a call.
type try struct {
	call   *modelCall
	number uint64
	costs  []store.Cost
	totals []store.Total // nil until it has arrived
}

// modelNode makes calls as package outbox does.
type modelNode struct {
	r             *modelRegion
	keys          [][2]*dumbCell
	current       [modelKeys]int
	epochs        epochs.Epochs
	merged        Counters
	sends, claims modelStream
	lost          [][2]store.Epoch // and the next epoch, of entries that were not walked yet
	newest        store.Epoch
	ended         map[store.Epoch]bool
}

func (n *modelNode) cell(rt *rapid.T) *dumbCell {
	k := rapid.IntRange(0, modelKeys-1).Draw(rt, "key")
	return n.keys[k][n.current[k]]
}

func (n *modelNode) accept(rt *rapid.T) {
	d, cost := n.cell(rt), rapid.Int64Range(1, 20).Draw(rt, "cost")
	d.e.counter.add(d.slot(), cost)
	d.callers += cost
	d.unsent += cost
}

// turn begins the next cell of a key.
func (n *modelNode) turn(rt *rapid.T) {
	k := rapid.IntRange(0, modelKeys-1).Draw(rt, "key")
	n.keys[k][1].e.rotate(anyTime, ledgerSeq+1)
	n.current[k] = 1
}

func (n *modelNode) try(c *modelCall) {
	c.try = &try{call: c, number: n.epochs.Begin(), costs: slices.Clone(c.costs)}
	n.r.tries = append(n.r.tries, c.try)
}

// send sends unsent cost, or a cost without an answer again.
func (n *modelNode) send(rt *rapid.T, known bool) {
	c := n.sends.call
	switch {
	case c != nil && c.try != nil:
		return
	case c == nil:
		c = &modelCall{node: n, stream: &n.sends}
		for _, cells := range n.keys {
			x := cells[0].e.Ledger().Load(anyTime, false, false, ledgerMs(), 200)
			for i, sends := range x.Sends {
				if at := x.Sequence - 1 + int64(i) - ledgerSeq; at >= 0 && cells[at].load(rt, x.Costs[i], sends) {
					c.costs, c.cells = append(c.costs, x.Costs[i]), append(c.cells, cells[at])
				}
			}
		}
		if len(c.costs) == 0 {
			return
		}
		n.sends.call = c
	default:
		known = c.firstIn == 0
	}
	if known {
		c.firstIn = n.r.origin.epoch
	}
	n.try(c)
}

// claim claims costs, or finds out the outcome of claims without an answer.
func (n *modelNode) claim(rt *rapid.T) {
	c := n.claims.call
	if c == nil {
		c = &modelCall{node: n, stream: &n.claims}
		for range rapid.IntRange(1, 3).Draw(rt, "claims") {
			d, cost := n.cell(rt), rapid.Int64Range(1, 20).Draw(rt, "cost")
			v := Verdict{Sequence: d.sequence, AtMs: window.Start(d.sequence+1, time.Minute.Milliseconds()) - 1}
			keeps := rapid.Bool().Draw(rt, "keeps")
			claim := &dumbClaim{Claim: NewClaim(d.e, &v, modelLimit, cost, false, keeps), epoch: d.epoch}
			bounded, way := claim.Prepare(false, 1, 200, clock.SteadyStart)
			if way != WayClaim {
				continue
			}
			if d.unsent+d.flying+d.restore > 0 || bounded.Epoch != d.epoch {
				rt.Fatalf("claimed %+v beside %+v", bounded, d)
			}
			d.claims = append(d.claims, claim)
			c.costs, c.cells, c.claims = append(c.costs, bounded), append(c.cells, d), append(c.claims, claim)
		}
		if len(c.costs) == 0 {
			return
		}
		n.claims.call = c
	} else if c.try != nil {
		return
	}
	n.try(c)
}

// leave ends the wait of a claim's caller.
func (n *modelNode) leave(rt *rapid.T) {
	if c := n.claims.call; c != nil {
		i := rapid.IntRange(0, len(c.claims)-1).Draw(rt, "claim")
		c.claims[i].Leave()
		c.cells[i].left(c.claims[i])
	}
}

func (n *modelNode) read() {
	c := &modelCall{node: n}
	for k, cells := range n.keys {
		c.cells = append(c.cells, cells[:1+n.current[k]]...)
	}
	n.try(c)
}

// renew walks the entries for the first lost epoch.
func (n *modelNode) renew() {
	if len(n.lost) == 0 {
		return
	}
	lost := n.lost[0]
	n.lost = n.lost[1:]
	for _, cells := range n.keys {
		cells[0].e.Ledger().Renew(lost[0], lost[1])
		for _, d := range cells {
			if d.epoch == lost[0] {
				d.begin()
				d.epoch = lost[1]
			}
		}
	}
}

// arrive delivers a try to the origin.
func (r *modelRegion) arrive(rt *rapid.T) {
	if t := r.one(rt, func(t *try) bool { return t.totals == nil }); t != nil {
		r.reach(t)
	}
}

func (r *modelRegion) reach(t *try) {
	if t.call.stream != nil {
		r.origin.apply(t)
	}
	for _, d := range t.call.cells {
		if t.call.stream == nil {
			t.totals = append(t.totals, store.Total{Region: r.origin.cell(d.name()).region(), Epoch: r.origin.epoch})
		}
	}
	if t.call.try != t {
		r.drop(t)
	}
}

func (r *modelRegion) drop(t *try) {
	r.tries = slices.DeleteFunc(r.tries, func(o *try) bool { return o == t })
}

func (r *modelRegion) one(rt *rapid.T, of func(*try) bool) *try {
	var all []*try
	for _, t := range r.tries {
		if of(t) {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return rapid.SampledFrom(all).Draw(rt, "try")
}

// lose makes a call's answer come too late. The try can still arrive, as long as the call has no answer.
func (r *modelRegion) lose(rt *rapid.T) {
	if t := r.one(rt, func(t *try) bool { return t.call.try == t }); t != nil {
		r.giveUp(t)
	}
}

func (r *modelRegion) giveUp(t *try) {
	c := t.call
	if c.try = nil; t.totals != nil || c.stream == nil {
		r.drop(t)
	}
	for i, claim := range c.claims {
		claim.Lose()
		c.cells[i].left(claim)
		c.costs[i].AtMost = -1
	}
}

func (r *modelRegion) answer(rt *rapid.T) {
	if t := r.one(rt, func(t *try) bool { return t.totals != nil }); t != nil {
		r.merge(rt, t)
	}
}

// merge merges the answer to a call.
func (r *modelRegion) merge(rt *rapid.T, t *try) {
	c, n, totals := t.call, t.call.node, t.totals
	if of := totals[0].Epoch; of < n.newest && !n.ended[of] { // DESIGN.md, Precision given up: answers in another order
		r.giveUp(t)
		return
	}
	n.newest = max(n.newest, totals[0].Epoch)
	n.epochs.Forget(t.number, totals, t.costs)
	for i, d := range c.cells {
		total, l := &totals[i], d.e.Ledger()
		var lost, want store.Epoch
		switch {
		case c.stream == nil:
			lost, want = l.Absorb(&n.merged, d.sequence, total, clock.SteadyStart), d.enter(total.Epoch)
		case c.claims == nil:
			_, _, lost = l.Confirm(&n.merged, &t.costs[i], total, clock.SteadyStart)
			want = d.confirm(&t.costs[i], total)
		case total.Err != nil:
			c.claims[i].End(WayBroken)
			lost = l.Absorb(&n.merged, d.sequence, total, clock.SteadyStart)
			d.release(c.claims[i])
			want = d.enter(total.Epoch)
		default:
			lost, _, _ = c.claims[i].Merge(&n.merged, total, clock.SteadyStart)
			want = d.merge(c.claims[i], total)
		}
		if lost != want {
			rt.Fatalf("%+v shows that epoch %d is lost, want %d", total, lost, want)
		}
		if lost != 0 && n.epochs.End(lost, total.Epoch) {
			n.lost = append(n.lost, [2]store.Epoch{lost, total.Epoch})
			n.ended[lost] = true
		}
	}
	if c.stream != nil {
		c.stream.call = nil
	}
	r.tries = slices.DeleteFunc(r.tries, func(o *try) bool { return o.call == c })
}

func (r *modelRegion) check(rt *rapid.T) {
	for _, n := range r.nodes {
		for _, cells := range n.keys {
			for _, d := range cells {
				d.check(rt)
			}
		}
	}
}

// settle answers all calls until nothing is left to send.
func (r *modelRegion) settle(rt *rapid.T) {
	for range 20 {
		for _, n := range r.nodes {
			for len(n.lost) > 0 {
				n.renew()
			}
			n.send(rt, false)
			if c := n.claims.call; c != nil && c.try == nil {
				n.try(c)
			}
			n.read()
		}
		for len(r.tries) > 0 {
			if t := r.tries[0]; t.totals == nil {
				r.reach(t)
			} else {
				r.merge(rt, t)
			}
		}
		r.check(rt)
	}
	for k := range modelKeys {
		for s := range 2 {
			var own, excess int64
			for _, n := range r.nodes {
				d := n.keys[k][s]
				own, excess = own+d.own(), excess+d.excess
			}
			name := r.nodes[0].keys[k][s].name()
			total := r.origin.cell(name).region()
			if total < own || total > own+excess {
				rt.Errorf("the origin has %d of %v, want the %d that were accepted, and at most %d more", total, name, own, excess)
			}
			for i, n := range r.nodes {
				is := n.keys[k][s].e.LookAt(n.keys[k][s].sequence)
				if is.Held && (is.Accepted < total || is.Accepted > total+excess) {
					rt.Errorf("node %d has counted %+v, want %d, and at most %d more", i, is, total, excess)
				}
			}
		}
	}
}

// dumbCell is the state that a node should have of a cell.
type dumbCell struct {
	e        *Entry
	sequence int64

	epoch   store.Epoch
	callers int64 // cost that callers were allowed
	credit  int64
	wasted  int64 // cost of claims added for callers who have left, beyond the highest credit of a cell
	claims  []*dumbClaim

	unsent, flying, restore int64
	sends                   bool // flying, or cost to restore, is on its way
	first                   bool // flying was sent without an epoch, and another answer has brought an epoch

	// excess is cost of claims that an epoch had added, and that the node takes for not added: other nodes restore it.
	excess int64
}

// dumbClaim is a claim on its way.
type dumbClaim struct {
	*Claim
	epoch            store.Epoch // that it was sent in
	added            bool        // by the origin, in any epoch
	hasLeft, hasKept bool
}

func (d *dumbCell) slot() int         { return slotOf(d.sequence) }
func (d *dumbCell) name() window.Cell { return d.e.Cell(d.sequence) }

// own returns the cost that the node has accepted.
func (d *dumbCell) own() int64 {
	return d.callers + d.credit + d.wasted
}

// pay pays for cost from the credit, and returns the rest.
func (d *dumbCell) pay(cost int64) (rest int64) {
	paid := min(d.credit, cost)
	d.credit -= paid
	return cost - paid
}

func (d *dumbCell) load(rt *rapid.T, c store.Cost, sends bool) bool {
	if d.sends {
		if sends {
			rt.Fatalf("%+v is sent beside %+v", c, d)
		}
		return false
	}
	d.unsent = d.pay(d.unsent)
	if sends != (d.unsent > 0 || d.restores()) ||
		sends && (c.Add != d.unsent || c.Restore != d.restore || c.Epoch != d.epoch) {
		rt.Fatalf("%+v is sent, %v, want the cost of %+v", c, sends, *d)
	}
	d.sends, d.flying, d.unsent = sends, d.unsent, 0
	return sends
}

func (d *dumbCell) restores() bool { return d.e.flags.Load()&(flagRestore<<d.slot()) != 0 }

func (d *dumbCell) enter(epoch store.Epoch) (lost store.Epoch) {
	if epoch == 0 || epoch == d.epoch {
		return 0
	}
	if lost = d.epoch; lost != 0 {
		d.begin()
	} else if d.sends {
		d.first = true
	}
	d.epoch = epoch
	return lost
}

// begin restores all own cost in a new epoch, except for a first cost on its way.
func (d *dumbCell) begin() {
	for _, c := range slices.Clone(d.claims) {
		if c.hasKept && c.epoch != 0 {
			d.release(c)
		}
	}
	if !d.first {
		d.sends, d.flying = false, 0
	}
	d.restore, d.unsent = d.own()-d.flying, 0
}

func (d *dumbCell) confirm(sent *store.Cost, total *store.Total) (lost store.Epoch) {
	if d.epoch == 0 {
		d.epoch = total.Epoch
	}
	if lost = d.enter(total.Epoch); !d.sends {
		return lost
	}
	flying := d.flying
	d.sends, d.first, d.flying = false, false, 0
	switch {
	case total.Err == nil:
		d.restore -= sent.Restore
	case sent.Epoch == 0:
		d.restore += flying
	default:
		d.unsent += flying
	}
	return lost
}

// left records that the caller of a claim has stopped waiting.
func (d *dumbCell) left(c *dumbClaim) {
	c.hasKept = c.hasKept || !c.hasLeft && c.keeps
	c.hasLeft = true
}

// end takes a claim off its way; false if its epoch was lost before.
func (d *dumbCell) end(c *dumbClaim) (was bool) {
	i := slices.Index(d.claims, c)
	if i >= 0 {
		d.claims = slices.Delete(d.claims, i, i+1)
	}
	return i >= 0
}

// release ends a claim that was not added.
func (d *dumbCell) release(c *dumbClaim) {
	if !d.end(c) {
		return
	}
	if c.hasKept {
		d.callers += c.Cost
		d.unsent += c.Cost
	}
	if c.added && (!c.hasKept || c.epoch == 0) { // cost that was kept in an epoch is restored, too
		d.excess += c.Cost
	}
}

func (d *dumbCell) merge(c *dumbClaim, total *store.Total) (lost store.Epoch) {
	if !total.Added {
		lost = d.enter(total.Epoch)
		d.release(c)
		return lost
	}
	lost = d.enter(total.Epoch)
	was := d.end(c)
	if was && total.Epoch == 0 {
		d.restore += c.Cost
	}
	switch {
	case !was:
	case c.hasLeft && !c.hasKept:
		peers := d.e.Ledger().cells[d.slot()].peers
		credit := max(0, min(c.Cost, d.own()+c.Cost+peers-d.credit)) // no more than the node has accepted and received
		d.credit, d.wasted = d.credit+credit, d.wasted+c.Cost-credit
	default:
		d.callers += c.Cost
	}
	return lost
}

func (d *dumbCell) check(rt *rapid.T) {
	is := d.e.LookAt(d.sequence)
	if !is.Held {
		return
	}
	l, claiming := d.e.Ledger(), int64(0)
	for _, c := range d.claims {
		claiming += c.Cost
	}
	peers := l.cells[d.slot()].peers
	unconfirmed := d.unsent + d.flying
	if d.restores() {
		unconfirmed += max(1, d.restore)
	} else if d.restore > 0 {
		rt.Fatalf("%d are not restored: %+v", d.restore, is)
	}
	got := l.unconfirmedLocked(d.slot(), d.e.counter.word(d.slot()))
	if got != unconfirmed || is.Claiming != claiming || is.Credit != d.credit || is.Unsent != d.unsent ||
		is.Accepted-peers != d.own() || peers < 0 || is.Settled < peers {
		rt.Fatalf("unconfirmed %d, claiming %d, peers %d, %+v;\nwant unconfirmed %d, claiming %d, own %d of %+v",
			got, is.Claiming, peers, is, unconfirmed, claiming, d.own(), *d)
	}
}
