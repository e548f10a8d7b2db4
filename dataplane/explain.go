package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// Explanation is each term of a decision: what it is, where it is from and how old. It
// describes one moment of one node.
type Explanation struct {
	At time.Time

	// What is counted: the names that were asked for, in the duration that is in force, in the mode of the
	// namespace, "exact" or "estimate".
	Workspace, Namespace, Identifier string
	Duration                         time.Duration
	Mode                             string

	// Decision is what Allow would answer now by what this node knows, without asking
	// the origin. Nothing is counted.
	Decision Decision

	// Overridden tells that an override set the limit; Decision.Override is its pattern.
	Overridden        bool
	Candidate         int64     // limit judged beside it, see Decision.CandidateDenied; 0 for none
	Shadow            bool      // the namespace, the override or the request lets pass what is over its limit
	Outage, NodeShare string    // the namespace's policies
	Reset             int64     // generation of the identifier's reset in force; 0: none is
	ResetAt           time.Time // when that one was made, by the count store's clock

	// Known tells that this node holds the key. Of one that it does not, no count is
	// known here; a decision would ask the origin, and Explain does not.
	Known             bool
	Current, Previous ExplainedCell
	Weight            float64 // of Previous, in (0, 1]
	Leaks             bool    // the estimate mode's leaky cut-off decides: Decision.Current has its level

	RefreshedAt time.Time // when the origin last spoke of the current cell; zero: never
	StrictUntil time.Time // decisions ask the origin first until then; zero: they need not
	AsksOrigin  bool      // a decision now would, unless it is denied by what is known
	RestsFor    time.Duration
	Asks, Sends string // breakers of the key's shard: "closed", "half-open", "open"; "" without an origin
	Nodes       int64  // of the region, that a share of what is left is reckoned for

	TuningVersion  int64     // of the stored tuning; 0: the built-in default
	Trial          int64     // number of the trial whose tuning is in force instead; 0: none
	SettingsAt     time.Time // last settings read; zero: never
	SettingsResets int       // resets of keys that this node knows of
}

// ExplainedCell is one cell of a key, as this node knows it.
type ExplainedCell struct {
	Sequence   int64
	Start      time.Time
	Generation int64 // of the reset that is in its name; not 0 only in the cell of a reset, and before

	Held      bool  // this node has counts of it; otherwise all of them are 0
	Regional  int64 // accepted in this region, as far as this node knows
	Confirmed int64 // of Regional: known to the origin, or on its way there
	Unsent    int64 // of Regional: this node's own, not sent to the origin yet
	Foreign   int64 // accepted in all other regions, as the origin last said
	Credit    int64 // refunded here after others were told: taken off when deciding
	Carried   int64 // from cells that were in the future once the clock had been set back
	Restores  bool  // the origin has lost it, and is to be told again
	// Counts is the sum that decisions here use: Regional + Foreign + Carried - Credit, plus the
	// claims in flight.
	Counts int64
}

// Explain tells why r would be answered as it would. It counts nothing, brings no key into
// memory, and calls no server. It may wait for the key's lock, which no decision waits for; it is
// for people, and costs some microseconds.
func (l *Limiter) Explain(r Request) (x Explanation, err error) {
	if err := r.Validate(); err != nil {
		return x, err
	}
	w := explaining{engine: &l.engine, set: l.engine.rules.InForce(), x: &x}
	w.explain(&r)
	return x, nil
}

// explaining is one call of Explain.
type explaining struct {
	engine *engine
	set    *rules.Settings
	by     *rules.Rule // that applies to the request
	call   call
	entry  *cell.Entry // nil if this node does not hold the key
	v      cell.Verdict
	x      *Explanation
}

func (w *explaining) explain(r *Request) {
	g, x, c, v := w.engine, w.x, &w.call, &w.v
	nowMs := g.clock.ReadMs()
	named := r.key()
	w.by = r.resolve(w.set)
	by := w.by
	*c = call{request: r, nowMs: nowMs, durationMs: r.Duration.Milliseconds(), limit: r.Limit, cost: r.cost(),
		mode: by.Mode()}
	id := g.table.IdentityOf(named.Workspace, named.Namespace, named.Identifier, r.Duration, c.mode)
	var reset window.Reset
	if by.Reset != nil {
		id.Renew(by.Reset)
		reset = *by.Reset
		x.Reset, x.ResetAt = int64(reset.Generation), time.UnixMilli(reset.AtMs)
	}
	key := c.key()
	x.At, x.Duration, x.Mode = time.UnixMilli(nowMs), key.Duration, key.Mode.String()
	x.Workspace, x.Namespace, x.Identifier = key.Workspace, key.Namespace, key.Identifier
	x.Shadow = by.Shadow || r.Shadow
	w.readSettings()
	v.Sequence, v.AtMs = window.Sequence(nowMs, c.durationMs), nowMs
	if w.entry = g.table.Get(&id); w.entry != nil {
		w.readEntry()
	}
	x.Current.place(key, v.Sequence, reset)
	x.Previous.place(key, v.Sequence-1, reset)
	uncovered := window.Start(v.Sequence+1, c.durationMs) - v.AtMs
	x.Weight = float64(uncovered) / float64(c.durationMs)
	v.Current, v.Previous = max(0, x.Current.Counts), max(0, x.Previous.Counts)
	if by.Estimate != nil {
		w.judgeLevel()
		x.Leaks = v.Leaky
	} else {
		v.Allowed = window.Fits(v.Current, v.Previous, c.cost, c.limit, uncovered, c.durationMs)
	}
	if !v.Allowed {
		setRetry(v, c, by)
	}
	x.Decision.answer(v, c, by, SourceLocal)
	if !g.alone && by.Estimate == nil {
		x.AsksOrigin = v.Allowed && (w.entry == nil || w.entry.Reads().WantsRefresh(g.clock.Steady(), w.set.FreshForMs))
	}
}

func (w *explaining) readSettings() {
	x, set, by := w.x, w.set, w.by
	x.Overridden, x.Candidate = by.Pattern != "", by.Candidate
	x.Outage, x.NodeShare = by.Outage.String(), rules.NodeShareName(by.Waits)
	x.Nodes, x.SettingsResets = set.Nodes, set.Resets()
	x.TuningVersion, x.Trial = set.Version, set.TrialNumber
	x.SettingsAt = moment(w.engine.wallMs(w.engine.rules.ReadAt()))
}

func (w *explaining) readEntry() {
	g, x, e, v, c := w.engine, w.x, w.entry, &w.v, &w.call
	x.Known = true
	if !g.alone {
		x.Asks, x.Sends = g.out.ShardOf(e).States()
		x.RestsFor = e.Reads().RestsFor(g.clock.Steady())
	}
	now := g.clock.Steady()
	at := e.Look(v.Sequence, now)
	v.AtMs = max(v.AtMs, window.Start(at.Sequence, c.durationMs))
	v.Sequence = at.Sequence
	x.RefreshedAt, x.StrictUntil = g.clock.WallOf(at.RefreshedAt, c.nowMs), g.clock.WallOf(at.StrictUntil, c.nowMs)
	x.Current.read(&at.Current, g.table.Fleet)
	x.Previous.read(&at.Previous, g.table.Fleet)
}

// judgeLevel is the verdict of the estimate mode, where a first contact is allowed.
func (w *explaining) judgeLevel() {
	g, e, v, c, by := w.engine, w.entry, &w.v, &w.call, w.by
	v.Now = g.clock.ReadSteady()
	v.Level = level.OfCells(v.Current, v.Previous, window.Start(v.Sequence+1, c.durationMs)-v.AtMs, c.durationMs)
	v.Unknown = g.table.Fleet && v.Current == 0 && v.Previous == 0 && (e == nil || e.Reads().RefreshedAt() == 0)
	if e != nil {
		if unknown, leaks := e.Estimates().Explain(v, c.limit, c.durationMs, &by.Estimate.Rules); leaks {
			v.Leaky, v.Unknown = true, unknown
		}
	}
	v.Allowed = v.Unknown && c.limit > 0 || v.Level.Fits(c.cost, c.limit, c.durationMs, by.Estimate.Below)
}

// place sets where a cell lies.
func (c *ExplainedCell) place(key window.Key, sequence int64, reset window.Reset) {
	key.Generation = reset.GenerationOf(sequence, key.DurationMs())
	c.Sequence, c.Start = sequence, time.UnixMilli(window.Start(sequence, key.DurationMs()))
	c.Generation = int64(key.Generation)
}

// read takes a reading over. What is sent, and what others have, only a fleet knows.
func (c *ExplainedCell) read(at *cell.CellLook, fleet bool) {
	c.Held, c.Regional, c.Counts = at.Held, at.Accepted, at.Counted+at.Others
	if !fleet {
		return
	}
	c.Confirmed = min(c.Regional, at.Settled)
	c.Unsent = c.Regional - c.Confirmed
	c.Foreign, c.Credit, c.Carried = at.Foreign, at.Credit, at.Carried
	c.Restores = at.Restores
}

func moment(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}
