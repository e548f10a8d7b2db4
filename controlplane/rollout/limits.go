package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/settings"
)

// validateLimits is Validate for a change of limits.
func (s Spec) validateLimits() error {
	if s.Tuning != "" {
		return fmt.Errorf("%w: tuning and limits are both set: a rollout wants exactly one of them", controlplane.ErrInvalid)
	}
	if err := s.Plan.Guardrails.LimitsGuardrails.Validate(); err != nil {
		return err
	}
	if _, err := s.trial(false); err != nil {
		return err
	}
	if err := s.Plan.Validate(); err != nil {
		return err
	}
	if err := s.Plan.ValidateForLimits(); err != nil || !s.Plan.Stages[0].Shadow {
		return err
	}
	if field := unshadowed(*s.Limits); field != "" {
		return fmt.Errorf("%w: %s, which no shadow can judge: leave out the stages with shadow", controlplane.ErrInvalid,
			field)
	}
	return nil
}

// unshadowed names the first item and field that changes how decisions are counted, so that the counts of today do not
// show what the change would decide; empty: there is none.
func unshadowed(c settings.Change) string {
	for i, n := range c.Namespaces {
		for _, f := range []field{
			{"mode", n.Before.Mode, n.After.Mode}, {"outage", n.Before.Outage, n.After.Outage},
			{"node_share", n.Before.NodeShare, n.After.NodeShare}, {"window", n.Before.Window, n.After.Window},
			{"estimate", n.Before.Estimate, n.After.Estimate},
		} {
			if f.is != f.not {
				return fmt.Sprintf("limits.namespaces[%d] (%s/%s) changes %s", i, n.After.Workspace, n.After.Namespace, f.name)
			}
		}
	}
	for i, o := range c.Overrides {
		if o.Before != nil && o.After != nil && o.Before.DurationMs != o.After.DurationMs {
			return fmt.Sprintf("limits.overrides[%d] (%s) changes duration_ms", i, overrideName(o))
		}
	}
	return ""
}

// otherDuration names the overrides whose duration_ms the change creates, changes or deletes. A decision that the
// change gives another duration is judged by one side only, because the other side has other counts.
func otherDuration(c settings.Change) (names []string) {
	duration := func(o *settings.Override) int64 {
		if o == nil {
			return 0
		}
		return o.DurationMs
	}
	for _, o := range c.Overrides {
		if duration(o.Before) != duration(o.After) {
			names = append(names, overrideName(o))
		}
	}
	return names
}

// spacesOf returns the namespaces that a change names, each once and in order.
func spacesOf(c settings.Change) (names []string) {
	for _, n := range c.Namespaces {
		names = append(names, n.After.Workspace+"/"+n.After.Namespace)
	}
	for _, o := range c.Overrides {
		n := o.Name()
		names = append(names, n.Workspace+"/"+n.Namespace)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// trial returns the document of the trials of a mode.
func (s Spec) trial(shadow bool) (string, error) {
	t := settings.LimitsTrial{Mode: settings.TrialEnforce, Change: *s.Limits, Protected: s.Plan.Guardrails.Protected}
	if shadow {
		t.Mode = settings.TrialShadow
	}
	document, err := t.Document()
	if err != nil {
		return "", fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	return document, nil
}

// subject returns the subject's document, with every field present: the whole tuning, or the trial of the limits.
func (s Spec) subject() (string, error) {
	if s.Limits != nil {
		return s.trial(false)
	}
	return s.WholeTuning()
}

// noun names the subject's kind.
func (r *Rollout) noun() string {
	if r.Spec.Limits != nil {
		return "limits"
	}
	return "tuning"
}

func overrideName(o settings.OverrideChange) string {
	n := o.Name()
	return n.Workspace + "/" + n.Namespace + "/" + n.Pattern
}

// differencesMax bounds the items that Differences describes.
const differencesMax = 10

// Differences describes in one line how items differ from what a change expects: Before is what it expects, and After
// what is there. It describes at most ten items.
func Differences(c settings.Change) string {
	var lines []string
	for _, n := range c.Namespaces {
		lines = append(lines, fmt.Sprintf("namespace %s/%s is %s, not %s", n.After.Workspace, n.After.Namespace,
			namespaceText(n.After, n.Before), namespaceText(n.Before, n.After)))
	}
	for _, o := range c.Overrides {
		lines = append(lines, fmt.Sprintf("override %s is %s, not %s", overrideName(o), overrideText(o.After, o.Before),
			overrideText(o.Before, o.After)))
	}
	if more := len(lines) - differencesMax; more > 0 {
		lines = append(lines[:differencesMax], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(lines, "; ")
}

// namespaceText returns the settings in which a namespace differs from another.
func namespaceText(n, other settings.Namespace) string {
	return differing([]field{{"shadow", n.Shadow, other.Shadow}, {"mode", n.Mode, other.Mode},
		{"outage", n.Outage, other.Outage}, {"node_share", n.NodeShare, other.NodeShare},
		{"window", n.Window, other.Window}, {"estimate", n.Estimate, other.Estimate}})
}

// overrideText returns the settings in which an override differs from another, or all of them if there is no other.
func overrideText(o, other *settings.Override) string {
	if o == nil {
		return "absent"
	}
	if other == nil {
		other = &settings.Override{Limit: -1}
	}
	return differing([]field{{"limit", controlplane.Digits(o.Limit), controlplane.Digits(other.Limit)},
		{"duration_ms", o.DurationMs, other.DurationMs},
		{"candidate", controlplane.Digits(o.Candidate), controlplane.Digits(other.Candidate)},
		{"shadow", o.Shadow, other.Shadow}})
}

type field struct {
	name    string
	is, not any
}

func differing(fields []field) string {
	var texts []string
	for _, f := range fields {
		if f.is != f.not {
			texts = append(texts, fmt.Sprintf("%s %v", f.name, f.is))
		}
	}
	return strings.Join(texts, ", ")
}

// LimitsStore stores changes of limits. Its write IDs are unique for all time.
type LimitsStore interface {
	// LimitsConflicts returns the items that are not as before a change; see settings.Change.Conflicts.
	LimitsConflicts(ctx context.Context, c settings.Change) (settings.Change, error)
	// KeepLimits must make the whole change and end the trials in a single transaction, with an entry of the audit log for
	// each item, if every item is as before the change. It must make a write once. It must refuse a write that
	// RevertLimits has reverted.
	KeepLimits(ctx context.Context, w LimitsWrite) (LimitsWritten, error)
	// RevertLimits must undo a write in a single transaction: the items that are still as the change left them become as
	// before, each with an entry of the audit log. Other items stay as they are. If the write has not been made, nothing
	// changes, and it must never be made later. It must undo a write once.
	RevertLimits(ctx context.Context, w LimitsWrite) (LimitsWritten, error)
}

// LimitsWrite is a change of limits that a rollout makes or undoes.
type LimitsWrite struct {
	ID     string
	Change settings.Change
	controlplane.By
	Trials []tunings.TrialWrite // to end; only KeepLimits ends them
}

// LimitsWritten is the result of a LimitsWrite. An earlier attempt's result is returned again.
type LimitsWritten struct {
	Items   int    `json:"items,omitempty"`   // that were written
	Refused string `json:"refused,omitempty"` // why nothing was written
	Left    string `json:"left,omitempty"`    // items that others have edited since, which stay as they are
}

func (r *transition) limitsWrite(by controlplane.By) LimitsWrite {
	return LimitsWrite{ID: r.ID + "/limits", Change: *r.Spec.Limits, By: by, Trials: r.trialWrites()}
}

// limits executes a write of limits.
func (s Steps) limits(name string, w LimitsWrite,
	write func(context.Context, LimitsWrite) (LimitsWritten, error)) (LimitsWritten, error) {
	name += " " + w.ID
	return attempt(s, name, name, func(ctx context.Context) (LimitsWritten, error) { return write(ctx, w) })
}

// keepLimits stores the whole change, and ends the trials with it.
func (r *transition) keepLimits() (kept, refused string, err error) {
	written, err := r.steps.limits("keep", r.limitsWrite(r.writtenBy()), r.steps.work.store.KeepLimits)
	if err != nil || written.Refused != "" {
		return "", written.Refused, err
	}
	r.Kept, r.TrialsEnded, r.SinceMs = true, true, 0
	return controlplane.CountOf(written.Items, "item", "items"), "", nil
}

// revertLimits restores the items that are still as the rollout stored them, and makes sure that a late attempt stores
// nothing.
func (r *transition) revertLimits() error {
	by := controlplane.By{Actor: r.By.Actor, Reason: controlplane.ShortReason(fmt.Sprintf("rollout %s rolled back: %s",
		r.ID, r.Why))}
	written, err := r.steps.limits("revert", r.limitsWrite(by), r.steps.work.store.RevertLimits)
	if err != nil {
		return err
	}
	r.Reverted = true
	if written.Left != "" {
		text := "not rolled back, because something else changed it since: " + written.Left
		r.AddEvent(r.nowMs, controlplane.Itself, "leave", text)
		r.Why = controlplane.Shorten(r.Why+"; "+text, 4*controlplane.ReasonBytesMax)
	}
	return nil
}

// limitsConflict describes how the stored items differ from the states before a change, or returns "" if they are
// equal.
func (s Steps) limitsConflict(c settings.Change) (string, error) {
	return do(s, "look at the limits in force", func(ctx context.Context) (string, error) {
		conflicts, err := s.work.store.LimitsConflicts(ctx, c)
		return Differences(conflicts), err
	})
}
