package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/audit"
	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/shared/changes"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	settingsdoc "github.com/weirhq/weir/shared/settings"
)

// LimitsConflicts implements rollout.LimitsStore.
func (s rollouts) LimitsConflicts(ctx context.Context, c settingsdoc.Change) (settingsdoc.Change, error) {
	conflicts, err := limitsConflicts(ctx, s.queries, c)
	if err != nil {
		return conflicts, fmt.Errorf("read the limits in force: %w", explain(err))
	}
	return conflicts, nil
}

// trialConflict describes how the stored items differ from the states before the change of a limits trial.
func trialConflict(ctx context.Context, q *queries, document []byte) (string, error) {
	trial, err := settingsdoc.ReadLimitsTrial(document)
	if err != nil {
		return "", fmt.Errorf("%w: %w", controlplane.ErrInvalid, err)
	}
	conflicts, err := limitsConflicts(ctx, q, trial.Change)
	return rollout.Differences(conflicts), err
}

// limitsConflicts reads the items of a change by their keys, without locks.
func limitsConflicts(ctx context.Context, q *queries, c settingsdoc.Change) (conflicts settingsdoc.Change, err error) {
	in := new(settingsdoc.Document)
	for _, n := range c.Namespaces {
		rows, err := q.NamespaceLook(ctx, controlplanedb.NamespaceLookParams{WorkspaceID: []byte(n.After.Workspace),
			Namespace: []byte(n.After.Namespace)})
		if err != nil {
			return conflicts, err
		}
		for _, r := range rows {
			in.Namespaces = append(in.Namespaces, documentNamespace(*namespaceOf(n.After.Workspace, n.After.Namespace,
				controlplanedb.NamespaceGetRow(r))))
		}
	}
	type space struct{ workspace, namespace string }
	patterns := map[space][][]byte{}
	for _, o := range c.Overrides {
		n := o.Name()
		of := space{n.Workspace, n.Namespace}
		patterns[of] = append(patterns[of], []byte(n.Pattern))
	}
	for of, patterns := range patterns {
		rows, err := q.OverridesOf(ctx, controlplanedb.OverridesOfParams{WorkspaceID: []byte(of.workspace),
			Namespace: []byte(of.namespace), Patterns: patterns})
		if err != nil {
			return conflicts, err
		}
		for _, r := range rows {
			in.Overrides = append(in.Overrides, settingsdoc.Override{Workspace: of.workspace, Namespace: of.namespace,
				Pattern: string(r.Pattern), Limit: int64(r.Limit), DurationMs: int64(r.DurationMs),
				Candidate: int64(r.Candidate), Shadow: r.Shadow})
		}
	}
	return c.Conflicts(in), nil
}

func documentNamespace(n limits.Namespace) settingsdoc.Namespace {
	return settingsdoc.Namespace{Workspace: n.Workspace, Namespace: n.Namespace, Shadow: n.Shadow, Mode: n.Mode,
		Outage: n.Outage, NodeShare: n.NodeShare, Window: n.Window, Estimate: n.Estimate}
}

// limitsRecord is what has become of a write of limits. It is the state of a row of ratelimit_job_states, which is
// written in the same transaction as the items. So an attempt whose answer was lost, or that arrives late, finds it.
type limitsRecord struct {
	Kept     bool `json:"kept,omitempty"`
	Reverted bool `json:"reverted,omitempty"`
	rollout.LimitsWritten
}

// The numbers of saves of a limitsRecord.
const (
	recordKept     = 1
	recordReverted = 2
)

// KeepLimits implements rollout.LimitsStore.
func (s rollouts) KeepLimits(ctx context.Context, w rollout.LimitsWrite) (written rollout.LimitsWritten, err error) {
	err = s.recording(ctx, w.ID, func(q *queries, record limitsRecord) (limitsRecord, int64, error) {
		switch {
		case record.Reverted:
			written = rollout.LimitsWritten{Refused: "the rollout was rolled back before"}
			return record, 0, errRefused
		case record.Kept:
			written = record.LimitsWritten
			return record, 0, errRefused
		}
		items, conflicts, err := lockItems(ctx, q, w.Change)
		if err != nil {
			return record, 0, err
		}
		if conflicts.Items() > 0 {
			written = rollout.LimitsWritten{Refused: "something else changed the limits meanwhile: " +
				rollout.Differences(conflicts)}
			return record, 0, errRefused
		}
		for _, t := range w.Trials {
			if err := endTrial(ctx, q, t); err != nil {
				return record, 0, err
			}
		}
		written = rollout.LimitsWritten{Items: w.Change.Items()}
		if err := items.write(ctx, q, w.Change, w.By); err != nil {
			return record, 0, err
		}
		return limitsRecord{Kept: true, LimitsWritten: written}, recordKept, nil
	})
	if errors.Is(err, controlplane.ErrInvalid) { // for example, there is no room for a pattern
		return rollout.LimitsWritten{Refused: err.Error()}, nil
	}
	return written, err
}

// RevertLimits implements rollout.LimitsStore.
func (s rollouts) RevertLimits(ctx context.Context, w rollout.LimitsWrite) (written rollout.LimitsWritten, err error) {
	err = s.recording(ctx, w.ID, func(q *queries, record limitsRecord) (limitsRecord, int64, error) {
		if written = record.LimitsWritten; record.Reverted {
			return record, 0, errRefused
		}
		if written = (rollout.LimitsWritten{}); !record.Kept {
			return limitsRecord{Reverted: true}, recordReverted, nil
		}
		back := w.Change.Reverse()
		items, edited, err := lockItems(ctx, q, back)
		if err != nil {
			return record, 0, err
		}
		mine := without(back, edited)
		written = rollout.LimitsWritten{Items: mine.Items(), Left: rollout.Differences(edited)}
		if err := items.write(ctx, q, mine, w.By); err != nil {
			return record, 0, err
		}
		return limitsRecord{Kept: true, Reverted: true, LimitsWritten: written}, recordReverted, nil
	})
	if errors.Is(err, controlplane.ErrInvalid) {
		return rollout.LimitsWritten{Left: "all items: " + err.Error()}, nil
	}
	return written, err
}

// recording runs a transaction that first locks the record of a write of limits. change returns the record to save and
// its number, or errRefused to roll back. It may run again after a deadlock.
func (s rollouts) recording(ctx context.Context, id string,
	change func(*queries, limitsRecord) (limitsRecord, int64, error)) error {
	name := []byte("rollout/" + id)
	err := s.changing(ctx, func(q *queries) error {
		// Without a record this inserts an empty one, and with a record it only locks it.
		if err := q.JobStateSave(ctx, controlplanedb.JobStateSaveParams{Name: name}); err != nil {
			return err
		}
		row, err := q.JobState(ctx, name)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		var record limitsRecord
		if row.State != "" {
			if err := json.Unmarshal([]byte(row.State), &record); err != nil {
				return fmt.Errorf("read the record of the write %s: %w", id, err)
			}
		}
		record, saved, err := change(q, record)
		if err != nil {
			return err
		}
		state, err := json.Marshal(record)
		if err != nil {
			return err
		}
		if err := q.JobStateSave(ctx, controlplanedb.JobStateSaveParams{Name: name, Saved: uint64(saved),
			State: string(state)}); err != nil {
			return err
		}
		return changes.Changed(ctx, q)
	})
	if errors.Is(err, errRefused) {
		return nil
	}
	return err
}

// without returns the items of a change that are not among others.
func without(c, others settingsdoc.Change) (left settingsdoc.Change) {
	namespaces, overrides := map[settingsdoc.Namespace]bool{}, map[settingsdoc.Override]bool{}
	for _, n := range others.Namespaces {
		namespaces[n.Before] = true
	}
	for _, o := range others.Overrides {
		overrides[o.Name()] = true
	}
	for _, n := range c.Namespaces {
		if !namespaces[n.Before] {
			left.Namespaces = append(left.Namespaces, n)
		}
	}
	for _, o := range c.Overrides {
		if !overrides[o.Name()] {
			left.Overrides = append(left.Overrides, o)
		}
	}
	return left
}

// lockedItems are the rows of a change's items, by their names; nil: there is none.
type lockedItems struct {
	namespaces map[settingsdoc.Namespace]*limits.Namespace // by NamespaceChange.Before
	overrides  map[settingsdoc.Override]*controlplanedb.OverrideGetRow
}

// lockItems reads and locks the items of a change in their order, and returns the items that are not as before it.
func lockItems(ctx context.Context, q *queries,
	c settingsdoc.Change) (items lockedItems, conflicts settingsdoc.Change, err error) {
	items = lockedItems{map[settingsdoc.Namespace]*limits.Namespace{},
		map[settingsdoc.Override]*controlplanedb.OverrideGetRow{}}
	in := new(settingsdoc.Document)
	for _, n := range c.Namespaces {
		rows, err := q.NamespaceGet(ctx, controlplanedb.NamespaceGetParams{WorkspaceID: []byte(n.After.Workspace),
			Namespace: []byte(n.After.Namespace)})
		if err != nil {
			return items, conflicts, fmt.Errorf("read the namespace: %w", err)
		}
		for _, r := range rows {
			is := namespaceOf(n.After.Workspace, n.After.Namespace, r)
			items.namespaces[n.Before] = is
			in.Namespaces = append(in.Namespaces, documentNamespace(*is))
		}
	}
	for _, o := range c.Overrides {
		name := o.Name()
		rows, err := q.OverrideGet(ctx, keyOf(name))
		if err != nil {
			return items, conflicts, fmt.Errorf("read the override: %w", err)
		}
		for _, r := range rows {
			items.overrides[name] = &r
			is := name
			is.Limit, is.DurationMs, is.Candidate, is.Shadow = int64(r.Limit), int64(r.DurationMs), int64(r.Candidate), r.Shadow
			in.Overrides = append(in.Overrides, is)
		}
	}
	return items, c.Conflicts(in), nil
}

func keyOf(o settingsdoc.Override) controlplanedb.OverrideGetParams {
	return controlplanedb.OverrideGetParams{WorkspaceID: []byte(o.Workspace), Namespace: []byte(o.Namespace),
		Pattern: []byte(o.Pattern)}
}

// write makes a change of locked items, and then adds its entries to the audit log: after the first entry, no other row
// may be locked, see changes.Append.
func (items lockedItems) write(ctx context.Context, q *queries, c settingsdoc.Change, by controlplane.By) error {
	var entries []audit.Entry
	for _, n := range c.Namespaces {
		before := items.namespaces[n.Before]
		after := limits.Namespace{Workspace: n.After.Workspace, Namespace: n.After.Namespace, Shadow: n.After.Shadow,
			Mode: n.After.Mode, Outage: n.After.Outage, NodeShare: n.After.NodeShare, Window: n.After.Window,
			Estimate: n.After.Estimate}
		if err := putNamespace(ctx, q, before, after); err != nil {
			return err
		}
		e, err := limits.NamespaceEntry(by, before, &after)
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	for _, o := range deletedFirst(c.Overrides) {
		name := o.Name()
		before := items.overrides[name]
		var after *controlplanedb.OverrideGetRow
		if a := o.After; a != nil {
			after = &controlplanedb.OverrideGetRow{Limit: uint64(a.Limit), DurationMs: uint64(a.DurationMs),
				Candidate: uint64(a.Candidate), Shadow: a.Shadow}
		}
		if err := changes.Put(ctx, q, keyOf(name), controlplane.ErrInvalid, before, after); err != nil {
			return err
		}
		e, err := limits.OverrideEntry(by, listed(name, before), listed(name, after))
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
	for _, e := range entries {
		if err := insertAudit(ctx, q, e); err != nil {
			return err
		}
	}
	return nil
}

// deletedFirst returns the changes with deleted overrides first. A pattern that is deleted may have the room for a
// pattern that is created.
func deletedFirst(all []settingsdoc.OverrideChange) []settingsdoc.OverrideChange {
	var deleted, others []settingsdoc.OverrideChange
	for _, o := range all {
		if o.After == nil {
			deleted = append(deleted, o)
		} else {
			others = append(others, o)
		}
	}
	return append(deleted, others...)
}

func listed(name settingsdoc.Override, r *controlplanedb.OverrideGetRow) *limits.Override {
	if r == nil {
		return nil
	}
	return overrideOf(name.Workspace, name.Namespace, name.Pattern, *r)
}
