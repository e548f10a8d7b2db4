package dataplane

import (
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/internal/level"
	"github.com/weirhq/weir/dataplane/internal/rules"
	"github.com/weirhq/weir/shared/window"
)

// Explanation has each term of a decision, with its source and age. It describes the node at the moment of the call.
type Explanation struct {
	At time.Time

	// The key: the names from the request, the duration in force, and the mode of the namespace, "exact" or "estimate".
	Workspace, Namespace, Identifier string
	Duration                         time.Duration
	Mode                             string

	// Decision is the answer that Allow would give now from this node's counts, without reading the origin. Nothing is
	// counted.
	Decision Decision

	// Overridden reports whether an override set the limit; Decision.Override is its pattern.
	Overridden        bool
	Candidate         int64     // limit compared with the live limit, see Decision.CandidateDenied; 0 for none
	Shadow            bool      // the namespace, the override or the request lets requests over the limit pass
	Outage, NodeShare string    // the namespace's policies
	Window            string    // how the namespace counts a duration: "cells" or "precise"
	Reset             int64     // generation of the identifier's reset in force; 0: there is none
	ResetAt           time.Time // time of that reset, by the count store's clock

	// Known reports whether this node holds the key. If it does not, this node has no counts of the key. In a fleet, a
	// decision would read the origin, but Explain does not: see AsksOrigin.
	Known             bool
	Current, Previous ExplainedCell
	Weight            float64 // of Previous, in (0, 1]; 1 in a precise window
	Gone              int64   // cost of Previous that has left a precise window
	Leaks             bool    // the estimate mode's leaky cut-off decides: Decision.Current has its level

	RefreshedAt time.Time     // last reply of the origin about the current cell; zero: never
	StrictUntil time.Time     // until then, decisions read the origin first; zero: they need not
	AsksOrigin  bool          // a decision now would read the origin, unless this node's counts already deny it
	RestsFor    time.Duration // until a decision calls the origin again for this key after failed calls; 0: it may now
	Asks, Sends string        // breakers of the key's shard: "closed", "half-open", "open"; "" without an origin
	Nodes       int64         // number of nodes in the region, by which the remaining limit is divided

	// Other describes the side of a trial of limits that does not decide. It is nil if the trial does not change the
	// request's limit or shadow mode, or if its verdict would need counts of another window or mode.
	Other *OtherLimit

	TuningVersion  int64     // of the stored tuning; 0: the built-in default
	Trial          int64     // number of the trial of a tuning or of limits that the node runs; 0: none
	SettingsAt     time.Time // last settings read; zero: never
	SettingsResets int       // number of resets of keys in the settings in force
}

// OtherLimit is the limit by which a request is judged in addition to the limit in force, during a trial of limits.
type OtherLimit struct {
	Stored bool  // it is the stored limit, because the trial decides; otherwise it is the limit of the trial
	Limit  int64 // to which the other side sets the request's limit
	Denied bool  // the other side would deny the request, at the same counts
}

// ExplainedCell is one cell of a key, as this node has it.
type ExplainedCell struct {
	Sequence   int64
	Start      time.Time
	Generation int64 // of the key's reset, up to the cell in which it was made; 0 in later cells

	Held      bool  // this node has counts of it; otherwise all of them are 0
	Regional  int64 // accepted in this region, as far as this node has read
	Confirmed int64 // of Regional: the origin has it, or it is on its way there
	Unsent    int64 // of Regional: this node's own, not sent to the origin yet
	Foreign   int64 // accepted in all other regions, by the origin's last reply
	Credit    int64 // refunded here after its cost was sent: decisions subtract it
	Carried   int64 // moved here when the clock was set back, from cells that then lay in the future
	Restores  bool  // the origin has lost it, and this node will resend it
	// Counts is the sum that decisions here use: Regional + Foreign + Carried - Credit, plus the
	// claims in flight.
	Counts int64
}

// Explain explains the decision that r would get now. Use it to find out why a request is denied. It counts nothing,
// brings no key into memory, and calls no server. It may wait for the key's lock, but no decision waits for it. It
// takes some microseconds.
func (l *Limiter) Explain(r Request) (x Explanation, err error) {
	if err := r.Validate(); err != nil {
		return x, err
	}
	w := explaining{engine: &l.engine, set: l.engine.rules.InForce(), x: &x}
	w.explain(&r)
	return x, nil
}

// explaining is a call of Explain.
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
	named, own := r.key(), r.Limit
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
	uncovered := v.UncoveredMs(c.durationMs)
	x.Weight = float64(uncovered) / float64(c.durationMs)
	v.Current, v.Previous = max(0, x.Current.Counts), max(0, x.Previous.Counts-x.Gone)
	if by.Estimate != nil {
		w.judgeLevel()
		x.Leaks = v.Leaky
	} else {
		v.Allowed = window.Fits(v.Current, v.Previous, c.cost, c.limit, uncovered, c.durationMs)
	}
	if !v.Allowed {
		setRetry(w.entry, v, c, by)
	}
	x.Decision.answer(v, c, by, SourceLocal)
	w.readOther(own, named.Duration)
	if !g.alone && by.Estimate == nil {
		now := g.clock.Steady()
		x.AsksOrigin = v.Allowed && (w.entry == nil || w.entry.Reads().WantsRefresh(now, w.set.FreshForMs) ||
			g.asksFirst(w.entry, c, now, w.set))
	}
}

// readOther judges by the other side of a trial. own and duration are the request's.
func (w *explaining) readOther(own int64, duration time.Duration) {
	t, c := w.by.Trial, &w.call
	if t == nil {
		return
	}
	o, ok := t.Other(w.by, c.request.Identifier, c.limit, own, milliseconds(c.durationMs), duration)
	if ok {
		w.x.Other = &OtherLimit{Stored: t.Enforced, Limit: o.Limit, Denied: !o.Shadow && !c.request.Shadow &&
			!fitsCandidate(&w.v, c, o.Limit, SourceLocal, o.Below)}
	}
}

func (w *explaining) readSettings() {
	x, set, by := w.x, w.set, w.by
	x.Overridden, x.Candidate = by.Pattern != "", by.Candidate
	x.Outage, x.NodeShare = by.Outage.String(), rules.NodeShareName(by.Waits)
	x.Window = rules.WindowName(by.Precise)
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
	if v.Precise = e.Flags().Precise(); v.Precise {
		x.Gone = e.Histories().Gone(v.Sequence, v.AtMs)
	}
	x.RefreshedAt, x.StrictUntil = g.clock.WallOf(at.RefreshedAt, c.nowMs), g.clock.WallOf(at.StrictUntil, c.nowMs)
	x.Current.read(&at.Current, g.table.Fleet)
	x.Previous.read(&at.Previous, g.table.Fleet)
}

// judgeLevel computes the verdict of the estimate mode, which allows the first request of a key.
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

// place sets the position of a cell in time, and its generation.
func (c *ExplainedCell) place(key window.Key, sequence int64, reset window.Reset) {
	key.Generation = reset.GenerationOf(sequence, key.DurationMs())
	c.Sequence, c.Start = sequence, time.UnixMilli(window.Start(sequence, key.DurationMs()))
	c.Generation = int64(key.Generation)
}

// read copies a reading. Only a fleet has unsent cost and other regions' cost.
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
