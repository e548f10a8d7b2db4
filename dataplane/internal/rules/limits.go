package rules

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/internal/evidence"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/settings"
)

// A trial of limits changes namespaces and overrides on this node for as long as a rollout renews it. The node compiles
// the namespaces that the trial touches twice: from the stored rows, and from the rows with the change made. In the
// mode enforce it decides by the latter, and in shadow by the former. The other side judges the same decisions, and
// only package evidence sees its verdicts.
//
// If a stored row is no longer as the change expects it, the trial is void: the node decides by the stored rows, as if
// there were no trial. An operator's edit ends a trial that way, and so does the rollout that stores the change.

// limitsTrial is a change of limits on trial.
type limitsTrial struct {
	settings.LimitsTrial
	touched map[spaceName]bool // namespaces that the change touches
	log     *evidence.Log
}

// Compared has the other side of a trial, for a namespace that the trial touches.
type Compared struct {
	Space    *evidence.Space
	Enforced bool // the trial decides, and the other side is stored; otherwise it is the other way round

	other *space
}

// Other is a limit by which a decision is judged in addition to the limit in force.
type Other struct {
	Limit  int64
	Shadow bool // the limit lets everything pass
	Below  bool // see Estimate
}

// Other returns the limit of the other side for an identifier, where by, limit and duration are in force, and own and
// ownDuration are the request's. ok is false if both sides are the same, or if the other side cannot be judged by the
// counts of the side in force: it has another duration or mode, or a level leaks by the limit in force.
func (c *Compared) Other(by *Rule, identifier string, limit, own int64, duration, ownDuration time.Duration) (o Other,
	ok bool) {
	r := c.other.of(identifier)
	if o.Limit = own; r.Limit != Keep {
		o.Limit = r.Limit
	}
	o.Shadow, o.Below = r.Shadow, r.Estimate != nil && r.Estimate.Below
	switch {
	case cmp.Or(r.Duration, ownDuration) != duration || r.Mode() != by.Mode():
		return o, false
	case r.Estimate != nil && (r.Estimate.Leaky || by.Estimate.Leaky):
		return o, false
	}
	return o, o.Limit != limit || r.Shadow != by.Shadow
}

// Evidence returns the evidence about the trial of limits that is in force, or nil if there is none.
func (s *Settings) Evidence() *evidence.Log {
	if s.TrialNumber == 0 || s.trial == nil || s.trial.limits == nil {
		return nil
	}
	return s.trial.limits.log
}

// tryLimits takes a trial of limits from the rows that s is compiled from. same is the node's trial if it has the same
// number, or nil. Evidence is kept until another trial begins, or this trial is void.
func (s *Settings) tryLimits(rows *store.SettingsRows, last *Settings, same *trial) error {
	t := same
	if t == nil || t.limits == nil {
		document, err := settings.ReadLimitsTrial(rows.Trial.Document)
		if err != nil {
			return err
		}
		t = newLimitsTrial(document, rows.Trial.Number)
	}
	after, ok := t.limits.change(rows)
	if !ok {
		return nil // it is void
	}
	changed, _ := compileSpaces(after, nil, s.storedSpaces, last.trialSpaces)
	for name := range t.limits.touched {
		var known []error
		if stored := s.storedSpaces[name]; stored != nil {
			known = stored.problems
		}
		if err := newProblems(changed.add(name).problems, known); err != nil {
			return err
		}
	}
	s.trial, s.trialSpaces = t, t.limits.compare(s.storedSpaces, changed)
	for name, r := range s.resets.known {
		in := spaceName{name.workspace, name.namespace}
		if t.limits.touched[in] {
			s.trialSpaces[in].reset(name.identifier, r.Reset)
		}
	}
	return nil
}

func newLimitsTrial(document *settings.LimitsTrial, number int64) *trial {
	l := &limitsTrial{LimitsTrial: *document, touched: make(map[spaceName]bool), log: evidence.New(document)}
	for _, n := range evidence.Namespaces(&document.Change) {
		l.touched[spaceName{n.Workspace, n.Namespace}] = true
	}
	return &trial{tuned: tuned{TrialNumber: number}, limits: l}
}

// newProblems returns the problems that the stored rows do not have.
func newProblems(all, known []error) error {
	same := func(a error) bool {
		return slices.ContainsFunc(known, func(b error) bool { return a.Error() == b.Error() })
	}
	return joinFirst(slices.DeleteFunc(slices.Clone(all), same), 5)
}

// change returns the rows of the touched namespaces with the change made. ok is false if the change conflicts with the
// rows.
func (l *limitsTrial) change(rows *store.SettingsRows) (after *store.SettingsRows, ok bool) {
	var d settings.Document
	for _, n := range rows.Namespaces {
		if l.touched[spaceName{n.Workspace, n.Namespace}] {
			d.Namespaces = append(d.Namespaces, namespaceOf(n))
		}
	}
	for _, o := range rows.Overrides {
		if l.touched[spaceName{o.Workspace, o.Namespace}] {
			d.Overrides = append(d.Overrides, settings.Override(o))
		}
	}
	if l.Change.Conflicts(&d).Items() > 0 {
		return nil, false
	}
	after = new(store.SettingsRows)
	changed := l.Change.Apply(&d)
	for _, n := range changed.Namespaces {
		after.Namespaces = append(after.Namespaces, store.NamespaceRow{Workspace: n.Workspace, Namespace: n.Namespace,
			Shadow: n.Shadow, Mode: n.Mode, Outage: n.Outage, NodeShare: n.NodeShare, Window: store.Window(n.Window),
			Estimate: n.Estimate})
	}
	for _, o := range changed.Overrides {
		after.Overrides = append(after.Overrides, store.OverrideRow(o))
	}
	return after, true
}

// namespaceOf returns a row with its defaults.
func namespaceOf(n store.NamespaceRow) settings.Namespace {
	unset := settings.DefaultNamespace(n.Workspace, n.Namespace)
	return settings.Namespace{Workspace: n.Workspace, Namespace: n.Namespace, Shadow: n.Shadow,
		Mode: cmp.Or(n.Mode, unset.Mode), Outage: cmp.Or(n.Outage, unset.Outage),
		NodeShare: cmp.Or(n.NodeShare, unset.NodeShare), Window: cmp.Or(string(n.Window), unset.Window), Estimate: n.Estimate}
}

// compare returns the namespaces of the side that decides. Those that the trial touches are compared with the other
// side. They are copies or new, so that stored stays as it is.
func (l *limitsTrial) compare(stored, changed spaces) spaces {
	decide := maps.Clone(stored)
	for name := range l.touched {
		c := &Compared{Space: l.log.Space(evidence.Name{Workspace: name.workspace, Namespace: name.namespace}),
			Enforced: l.Mode == settings.TrialEnforce}
		was := stored[name]
		if was == nil {
			was = spaces{}.add(name)
		}
		sp := changed.add(name)
		if c.other = was; !c.Enforced {
			sp, c.other = was.clone(), sp
		}
		sp.compareWith(c)
		decide[name] = sp
	}
	return decide
}

// clone returns a copy whose rules can be changed.
func (sp *space) clone() *space {
	own := *sp
	own.wildcards = slices.Clone(sp.wildcards)
	own.exact = make(map[string]*Rule, len(sp.exact))
	for identifier, by := range sp.exact {
		own.exact[identifier] = new(*by)
	}
	return &own
}

func (sp *space) compareWith(c *Compared) {
	sp.Trial, sp.Special = c, true
	for _, by := range sp.exact {
		by.Trial, by.Special = c, true
	}
	for i := range sp.wildcards {
		sp.wildcards[i].Trial, sp.wildcards[i].Special = c, true
	}
}
