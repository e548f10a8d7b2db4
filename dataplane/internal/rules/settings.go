package rules

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// Settings is an immutable snapshot of operators' settings: a request sees all of a version or nothing of it.
type Settings struct {
	// Fields of the request path come first, to share a cache line.
	spaces                  spaces
	FreshForMs, StrictForMs int64 // from tuning
	// of replay: within which a node's cost reaches the other nodes of the region; from tuning
	TwoTicksMs int64
	Nodes      int64  // of the region, 1 to NodesMax
	NearShift  uint32 // a cost below limit >> NearShift is far from its share; 0: with no origin all are

	tuned         // in force: the stored tuning, or the tuning on trial
	stored tuned  // for the region
	trial  *trial // nil: this node has none

	// spaces is storedSpaces, or trialSpaces while a trial of limits is in force. The maps share the spaces that the trial
	// does not change.
	storedSpaces, trialSpaces spaces

	Version int64 // of the stored document; 0 is the built-in default
	// rows is store.SettingsRows.Version of the rows that this was compiled from without an error; empty: no version
	rows   string
	resets resets
	live   int // nodes of the region by their heartbeats; 0: unknown
}

// tuned is a tuning.
type tuned struct {
	Tuning      tuning.Tuning
	Hash        string
	TrialNumber int64 // of the trial that it is on; 0: it is stored
}

type spaceName struct{ workspace, namespace string }

type spaces map[spaceName]*space

// space holds the settings of a namespace.
type space struct {
	Rule      // of identifiers without an override
	exact     map[string]*Rule
	wildcards []Rule           // networks and patterns with '*', by window.ComparePatterns
	patterns  *window.Patterns // of the wildcards, by their places
	leftOut   []int            // wildcards that it leaves out
	problems  []error          // of its rows
}

// Rule holds the settings for a request. Requests get a pointer into the snapshot.
type Rule struct {
	Pattern   string        // of the override that applied, "" for none
	Limit     int64         // of the override; Keep: the request's
	Duration  time.Duration // of the override; 0 keeps the request's
	Shadow    bool
	Special   bool  // decisions are counted by more than their source and outcome: Estimate, Candidate or Trial is set
	Candidate int64 // limit that is judged in addition to the limit in force, and decides nothing; 0 for none
	Outage    Outage
	Waits     bool          // for its share; see node_share.go of package dataplane
	Precise   bool          // window: see store.WindowPrecise; false in the estimate mode
	Estimate  *Estimate     // nil in the exact mode
	Reset     *window.Reset // of the only identifier; nil for none
	Trial     *Compared     // nil: no trial of limits changes the namespace
}

var noRule = Rule{Limit: Keep, Waits: true} // of namespaces without settings

// Offered reports whether refused cost is counted too.
func (r *Rule) Offered() bool { return r.Estimate != nil && r.Estimate.Offered }

// Mode returns the mode of the rule's namespace.
func (r *Rule) Mode() window.Mode {
	if r.Estimate != nil {
		return window.Estimate
	}
	return window.Exact
}

func defaultSettings() *Settings { return newSettings(tuning.Default(), 0) }

func newSettings(t tuning.Tuning, version int64) *Settings {
	s := &Settings{stored: tuned{Tuning: t, Hash: t.Hash()}, Version: version}
	s.run(s.stored)
	return s
}

// run puts a tuning in force.
func (s *Settings) run(t tuned) {
	s.tuned = t
	s.FreshForMs = t.Tuning.FreshFor.Std().Milliseconds()
	s.StrictForMs = t.Tuning.StrictFor.Std().Milliseconds()
	s.TwoTicksMs = 2 * t.Tuning.ReplayTick.Std().Milliseconds()
}

// Resolve returns the rule for an identifier, and changes a request's limit and duration if an override sets them. For
// example, an override of acme/api "k*" to 50 sets the limit of k1 to 50. Without any namespace or override stored,
// Resolve costs a single comparison.
func (s *Settings) Resolve(workspace, namespace, identifier string, limit *int64, duration *time.Duration) *Rule {
	if len(s.spaces) == 0 {
		return &noRule
	}
	return s.find(workspace, namespace, identifier, limit, duration)
}

func (s *Settings) find(workspace, namespace, identifier string, limit *int64, duration *time.Duration) *Rule {
	sp := s.spaces[spaceName{workspace, namespace}]
	if sp == nil {
		return &noRule
	}
	by := sp.of(identifier)
	if by.Limit != Keep {
		*limit = by.Limit
	}
	if by.Duration > 0 {
		*duration = by.Duration
	}
	return by
}

// of returns the rule of an identifier.
func (sp *space) of(identifier string) *Rule {
	by := sp.exact[identifier]
	if by == nil {
		by = sp.match(identifier)
	}
	if by == nil {
		by = &sp.Rule
	}
	return by
}

// Shares reports whether other regions share the counts of a key.
func (s *Settings) Shares(n *cell.Names) bool {
	return milliseconds(n.Family().DurationMs) >= s.Tuning.MinGlobalDuration.Std()
}

// match finds the most specific wildcard.
func (sp *space) match(identifier string) *Rule {
	if at := sp.patterns.Find(identifier); at >= 0 {
		return &sp.wildcards[at]
	}
	return nil
}

// compile turns stored rows into a snapshot. If a tuning document can't be read or is out of bounds, the last good
// document stays in force. An invalid row is left out. In both cases the snapshot is usable and the error names the
// problem. Resets that have expired at nowMs are left out, too, except for held resets; see heldResets.
func compile(rows store.SettingsRows, held map[resetName]bool, last *Settings, nowMs int64) (*Settings, error) {
	next := newSettings(last.stored.Tuning, last.Version)
	var problems []error
	if rows.Problem != nil {
		problems = append(problems, rows.Problem)
	}
	switch {
	case rows.TuningVersion == 0:
		next = defaultSettings()
	case rows.TuningVersion != last.Version:
		if t, err := tuning.Read(rows.TuningDocument); err != nil {
			problems = append(problems, fmt.Errorf("tuning version %d: %w", rows.TuningVersion, err))
		} else {
			next = newSettings(t, rows.TuningVersion)
		}
	}
	next.storedSpaces, problems = compileSpaces(&rows, problems, last.storedSpaces, last.trialSpaces)
	next.spaces = next.storedSpaces
	if err := next.setResets(rows.Resets, held, last, nowMs); err != nil {
		problems = append(problems, err)
	}
	if len(problems) == 0 {
		next.rows = rows.Version
	}
	return next, joinFirst(problems, 5)
}

// compileSpaces compiles namespaces and overrides, and appends their problems. earlier has settings of before, from
// which it takes over indexes, counters and, from the first of them, settings that can't be read.
func compileSpaces(rows *store.SettingsRows, problems []error, earlier ...spaces) (spaces, []error) {
	next := make(spaces)
	note := func(sp *space, err error) {
		if err != nil {
			problems, sp.problems = append(problems, err), append(sp.problems, err)
		}
	}
	before := func(name spaceName) []*space {
		all := make([]*space, len(earlier))
		for i, e := range earlier {
			if all[i] = e[name]; all[i] == nil {
				all[i] = new(space)
			}
		}
		return all
	}
	for _, n := range rows.Namespaces {
		name := spaceName{n.Workspace, n.Namespace}
		sp := next.add(name)
		sp.Shadow = n.Shadow
		var err error
		if sp.Outage, err = parseOutage(n.Outage); err != nil {
			note(sp, fmt.Errorf("namespace %q/%q: %w", n.Workspace, n.Namespace, err))
		}
		if sp.Waits, err = parseNodeShare(n.NodeShare); err != nil {
			note(sp, fmt.Errorf("namespace %q/%q: %w", n.Workspace, n.Namespace, err))
		}
		note(sp, sp.setMode(&n, before(name)))
		note(sp, sp.setWindow(&n))
	}
	for _, o := range rows.Overrides {
		sp := next.add(spaceName{o.Workspace, o.Namespace})
		note(sp, sp.override(o))
	}
	for name, sp := range next {
		if err := errors.Join(sp.index(before(name)), sp.settle()); err != nil {
			note(sp, fmt.Errorf("namespace %q/%q: %w", name.workspace, name.namespace, err))
		}
	}
	return next, problems
}

// same returns s if compiling the rows would give the same settings, or a copy, in which the nodes
// are not counted yet, if only their number differs. It returns nil if the rows must be compiled:
// their version differs, a reset has expired since, or a reset that was skipped as expired has not
// expired after all, because the clock was ahead then.
func (s *Settings) same(rows *store.SettingsRows, nowMs int64) *Settings {
	if rows.Version == "" || rows.Version != s.rows || rows.Problem != nil {
		return nil
	}
	if s.resets.overMs > nowMs {
		return nil
	}
	for _, r := range s.resets.known {
		if r.expiresAtMs <= nowMs {
			return nil
		}
	}
	if rows.NodesLive == s.live {
		return s
	}
	next := *s
	return &next
}

// index makes the index of the wildcards, or takes an earlier index of the same wildcards. The error names the
// wildcards that are left out.
func (sp *space) index(earlier []*space) error {
	slices.SortFunc(sp.wildcards, func(a, b Rule) int { return window.ComparePatterns(a.Pattern, b.Pattern) })
	same := func(a, b Rule) bool { return a.Pattern == b.Pattern }
	alike := func(e *space) bool { return slices.EqualFunc(sp.wildcards, e.wildcards, same) }
	if i := slices.IndexFunc(earlier, alike); i >= 0 {
		sp.patterns, sp.leftOut = earlier[i].patterns, earlier[i].leftOut
	} else if len(sp.wildcards) > 0 {
		patterns := make([]string, len(sp.wildcards))
		for i := range patterns {
			patterns[i] = sp.wildcards[i].Pattern
		}
		sp.patterns, sp.leftOut = window.NewPatterns(patterns)
	}
	if len(sp.leftOut) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %d overrides are ignored, such as that of %q: more than %d patterns with several '*' "+
		"begin alike",
		window.ErrInvalid, len(sp.leftOut), sp.wildcards[sp.leftOut[0]].Pattern, window.PatternsAlikeMax)
}

// settle gives every override the namespace's settings, once all rows are applied. The error names the candidates that
// are left out: a leaky level has drained by the limit that was in force, so no other limit can be judged by it.
func (sp *space) settle() error {
	var left []string
	sp.Special = sp.Estimate != nil
	inherit := func(o *Rule) {
		own := *o
		*o = sp.Rule
		o.Pattern, o.Limit, o.Duration = own.Pattern, own.Limit, own.Duration
		o.Candidate, o.Shadow = own.Candidate, own.Shadow || sp.Shadow
		if o.Candidate != 0 && sp.Estimate != nil && sp.Estimate.Leaky {
			o.Candidate, left = 0, append(left, o.Pattern)
		}
		o.Special = o.Special || o.Candidate != 0
	}
	for _, o := range sp.exact {
		inherit(o)
	}
	for i := range sp.wildcards {
		inherit(&sp.wildcards[i])
	}
	if len(left) > 0 {
		return fmt.Errorf("%w: %d candidates are ignored, such as that of %q: drain is leaky", window.ErrInvalid, len(left),
			slices.Min(left))
	}
	return nil
}

// add returns a namespace's settings, which it adds if there are none.
func (s spaces) add(name spaceName) *space {
	if s[name] == nil {
		s[name] = &space{Rule: noRule, exact: make(map[string]*Rule)}
	}
	return s[name]
}

func (sp *space) override(row store.OverrideRow) error {
	probe := window.Key{Workspace: row.Workspace, Namespace: row.Namespace, Identifier: row.Pattern, Duration: time.Second}
	if row.DurationMs < 0 || row.DurationMs > window.DurationMax.Milliseconds() {
		return fmt.Errorf("override %q: %w: duration_ms is %d (0, or %d to %d)", row.Pattern, window.ErrInvalid,
			row.DurationMs, window.DurationMin.Milliseconds(), window.DurationMax.Milliseconds())
	}
	if row.DurationMs > 0 {
		probe.Duration = time.Duration(row.DurationMs) * time.Millisecond
	}
	problem := cmp.Or(probe.Validate(), validateLimit(row.Limit))
	if err := errors.Join(problem, window.ValidatePattern(row.Pattern)); err != nil {
		return fmt.Errorf("override %q: %w", row.Pattern, err)
	}
	if row.Candidate < 0 || row.Candidate > window.LimitMax {
		return fmt.Errorf("override %q: %w: candidate is %d (0 to %d; 0 for none)", row.Pattern, window.ErrInvalid,
			row.Candidate, int64(window.LimitMax))
	}
	o := Rule{Pattern: row.Pattern, Limit: row.Limit, Duration: milliseconds(row.DurationMs),
		Candidate: row.Candidate, Shadow: row.Shadow}
	if window.IsExact(row.Pattern) {
		sp.exact[row.Pattern] = &o
		return nil
	}
	sp.wildcards = append(sp.wildcards, o)
	return nil
}

func validateLimit(limit int64) error {
	if limit < 0 || limit > window.LimitMax {
		return fmt.Errorf("%w: limit is %d (0 to %d)", window.ErrInvalid, limit, int64(window.LimitMax))
	}
	return nil
}

// joinFirst joins the first few errors, and adds how many more there were.
func joinFirst(errs []error, most int) error {
	if len(errs) > most {
		errs = append(errs[:most:most], fmt.Errorf("and %d more", len(errs)-most))
	}
	return errors.Join(errs...)
}

func milliseconds(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
