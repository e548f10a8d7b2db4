package rollout

import (
	"context"
	"maps"

	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/shared/settings"
)

// limited is the limits in the database of a land, and the records of their writes. A write replaces all of it, so
// copies of a land share nothing that changes.
type limited struct {
	stored  settings.Document
	records map[string]limitsRecord
	writes  []LimitsWrite // that have changed something
}

type limitsRecord struct {
	kept, reverted bool
	result         LimitsWritten
}

// voids reports whether a document is a trial of limits and an item is no longer as before it.
func (l *limited) voids(document string) bool {
	if !settings.IsLimitsTrial([]byte(document)) {
		return false
	}
	trial, err := settings.ReadLimitsTrial([]byte(document))
	return err != nil || trial.Change.Conflicts(&l.stored).Items() > 0
}

func (l *land) LimitsConflicts(_ context.Context, c settings.Change) (settings.Change, error) {
	return c.Conflicts(&l.stored), l.err
}

func (l *land) record(id string, record limitsRecord) {
	records := maps.Clone(l.records)
	if records == nil {
		records = map[string]limitsRecord{}
	}
	records[id] = record
	l.records = records
}

func (l *land) KeepLimits(ctx context.Context, w LimitsWrite) (LimitsWritten, error) {
	if l.err != nil {
		return LimitsWritten{}, l.err
	}
	switch record := l.records[w.ID]; {
	case record.reverted:
		return LimitsWritten{Refused: "rolled back"}, nil
	case record.kept:
		return record.result, nil
	}
	if conflicts := w.Change.Conflicts(&l.stored); conflicts.Items() > 0 {
		return LimitsWritten{Refused: Differences(conflicts)}, nil
	}
	if _, err := l.EndTrials(ctx, w.Trials); err != nil {
		return LimitsWritten{}, err
	}
	l.stored = *w.Change.Apply(&l.stored)
	l.writes = append(l.writes[:len(l.writes):len(l.writes)], w)
	result := LimitsWritten{Items: w.Change.Items()}
	l.record(w.ID, limitsRecord{kept: true, result: result})
	return result, nil
}

func (l *land) RevertLimits(_ context.Context, w LimitsWrite) (LimitsWritten, error) {
	if l.err != nil {
		return LimitsWritten{}, l.err
	}
	record := l.records[w.ID]
	if record.reverted {
		return record.result, nil
	}
	result := LimitsWritten{}
	if record.kept {
		back := w.Change.Reverse()
		edited := back.Conflicts(&l.stored)
		mine := settings.Change{}
		for _, n := range back.Namespaces {
			if !contains(edited, n.Before, nil) {
				mine.Namespaces = append(mine.Namespaces, n)
			}
		}
		for _, o := range back.Overrides {
			name := o.Name()
			if !contains(edited, settings.Namespace{}, &name) {
				mine.Overrides = append(mine.Overrides, o)
			}
		}
		l.stored = *mine.Apply(&l.stored)
		result = LimitsWritten{Items: mine.Items(), Left: Differences(edited)}
	}
	l.record(w.ID, limitsRecord{kept: record.kept, reverted: true, result: result})
	return result, nil
}

func contains(c settings.Change, namespace settings.Namespace, override *settings.Override) bool {
	for _, n := range c.Namespaces {
		if override == nil && n.Before == namespace {
			return true
		}
	}
	for _, o := range c.Overrides {
		if override != nil && o.Name() == *override {
			return true
		}
	}
	return false
}

type fleetNode = fleet.NodeFigures

func lookOf(nodes []fleetNode) fleet.Look { return fleet.Look{Nodes: nodes} }
