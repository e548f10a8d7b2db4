// Package pulse reads the fleet once for all viewers of the console, and computes rates from the nodes' heartbeats.
package pulse

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

const (
	beatEvery   = 2 * time.Second
	beatTimeout = 10 * time.Second
	beatsKept   = 450             // 15 minutes
	wantedFor   = 5 * time.Minute // since the last view
)

// Pulse keeps the newest figures of the fleet, and a history of 15 minutes, for all viewers. It reads the fleet only
// while somebody watches. Its methods are safe for concurrent use.
type Pulse struct {
	ask func(context.Context) (*controlv1.FleetResponse, error)
	now func() time.Time

	beating sync.Mutex // held while a beat reads the fleet

	mu     sync.Mutex
	wanted time.Time // time of the last view
	last   Reading
	before map[string]node // each node's heartbeat before its newest
	newest map[string]node // each node's newest heartbeat
	points []Point         // oldest first, at most beatsKept
	beat   chan struct{}   // closed by the next beat
}

// Reading is the result of one beat. It is immutable.
type Reading struct {
	At      time.Time
	Fleet   *controlv1.FleetResponse // the newest fleet; nil before the first read
	Read    time.Time                // when Fleet was read
	Problem string                   // why the last read failed
	Rates   map[string]Rates
}

// Rates are decisions per second. The zero value means unknown: after one heartbeat, or after a
// long silence, a node's rates cannot be computed.
type Rates struct {
	Known    bool    `json:"known"`
	Allowed  float64 `json:"allowed"`
	Denied   float64 `json:"denied"`
	Shadowed float64 `json:"shadowed"`
	Degraded float64 `json:"degraded"`
}

// Add adds the known rates of o.
func (r *Rates) Add(o Rates) {
	r.Known = r.Known || o.Known
	r.Allowed += o.Allowed
	r.Denied += o.Denied
	r.Shadowed += o.Shadowed
	r.Degraded += o.Degraded
}

// Point is one measurement of the history, by region. Regions whose rate is unknown are missing, and so are all regions
// while the pulse did not run. Charts show a gap there.
type Point struct {
	AtMs    int64            `json:"at"`
	Regions map[string]Rates `json:"regions"`
}

// gapAfter is the time without a measurement from which a chart shows a gap.
const gapAfter = 3 * beatEvery

// node has the values of a heartbeat from which rates are computed.
type node struct {
	startedMs, seenMs                   int64
	allowed, denied, shadowed, degraded int64
}

// New returns a pulse that reads the fleet with ask.
func New(clock func() time.Time, ask func(context.Context) (*controlv1.FleetResponse, error)) *Pulse {
	return &Pulse{ask: ask, now: clock, newest: map[string]node{}, before: map[string]node{}, beat: make(chan struct{})}
}

// Run makes a beat every beatEvery while somebody watches, until ctx is done.
func (p *Pulse) Run(ctx context.Context) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.mu.Lock()
			wanted := p.now().Sub(p.wanted) < wantedFor
			p.mu.Unlock()
			if wanted {
				p.step(ctx)
			}
		}
	}
}

// Look returns the newest reading. If it is older than two beats, Look reads the fleet first.
func (p *Pulse) Look(ctx context.Context) Reading {
	p.mu.Lock()
	p.wanted = p.now()
	last := p.last
	p.mu.Unlock()
	if p.now().Sub(last.At) < 2*beatEvery {
		return last
	}
	p.step(ctx)
	last, _, _ = p.Watch()
	return last
}

// Watch returns the newest Reading, the history, and a channel that the next beat closes.
func (p *Pulse) Watch() (last Reading, points []Point, next <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = p.now()
	return p.last, p.points, p.beat
}

// step makes one beat. Of several concurrent calls only the first reads the fleet.
func (p *Pulse) step(ctx context.Context) {
	p.beating.Lock()
	defer p.beating.Unlock()
	now := p.now()
	p.mu.Lock()
	fresh := now.Sub(p.last.At) < beatEvery/2
	p.mu.Unlock()
	if fresh {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, beatTimeout)
	defer cancel()
	fleet, err := p.ask(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	next := Reading{At: now, Fleet: p.last.Fleet, Read: p.last.Read, Rates: p.last.Rates}
	if err != nil {
		next.Problem = apiclient.Words(err)
	} else {
		next.Fleet, next.Read, next.Rates = fleet, now, p.took(fleet)
		p.note(now, byRegion(fleet, next.Rates))
	}
	p.last = next
	close(p.beat)
	p.beat = make(chan struct{})
}

// note adds a point to the history. If the pulse did not run for a while, it first adds a point without regions.
func (p *Pulse) note(now time.Time, regions map[string]Rates) {
	points := append([]Point(nil), p.points...) // watchers still read the old slice
	if n := len(points); n > 0 && now.Sub(time.UnixMilli(points[n-1].AtMs)) >= gapAfter {
		points = append(points, Point{AtMs: points[n-1].AtMs + beatEvery.Milliseconds()})
	}
	points = append(points, Point{now.UnixMilli(), regions})
	p.points = points[max(0, len(points)-beatsKept):]
}

// took returns each node's rates between its two newest heartbeats. Nodes that are not live are missing, because their
// decisions are unknown.
func (p *Pulse) took(fleet *controlv1.FleetResponse) map[string]Rates {
	out := make(map[string]Rates, len(fleet.GetNodes()))
	seen := make(map[string]bool, len(fleet.GetNodes()))
	for _, n := range fleet.GetNodes() {
		id := n.GetNodeId()
		seen[id] = true
		h := n.GetHealth()
		is := node{n.GetStartedAtMs(), n.GetSeenAtMs(), h.GetAllowedTotal(), h.GetDeniedTotal(), h.GetShadowedTotal(),
			h.GetDegradedTotal()}
		if was, ok := p.newest[id]; ok && was.seenMs != is.seenMs {
			p.before[id] = was
		}
		p.newest[id] = is
		if was, ok := p.before[id]; ok && n.GetLive() {
			out[id] = is.since(was)
		}
	}
	maps.DeleteFunc(p.newest, func(id string, _ node) bool { return !seen[id] })
	maps.DeleteFunc(p.before, func(id string, _ node) bool { return !seen[id] })
	return out
}

// since returns a node's rates since an earlier heartbeat. After a restart the counters begin at 0.
func (n node) since(was node) Rates {
	seconds := float64(n.seenMs-was.seenMs) / 1000
	if seconds <= 0 {
		return Rates{}
	}
	if n.startedMs != was.startedMs {
		was = node{}
	}
	per := func(is, was int64) float64 { return float64(max(0, is-was)) / seconds }
	return Rates{true, per(n.allowed, was.allowed), per(n.denied, was.denied), per(n.shadowed, was.shadowed),
		per(n.degraded, was.degraded)}
}

// byRegion adds up the known rates of each region. Regions without any are missing from the result.
func byRegion(fleet *controlv1.FleetResponse, each map[string]Rates) map[string]Rates {
	sums := make(map[string]Rates)
	for _, n := range fleet.GetNodes() {
		if of := each[n.GetNodeId()]; of.Known {
			sum := sums[n.GetRegion()]
			sum.Add(of)
			sums[n.GetRegion()] = sum
		}
	}
	return sums
}
