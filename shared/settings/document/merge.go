package document

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/settings/internal/problems"
	"github.com/weirhq/weir/shared/tuning"
)

// Part is one of several documents, with its name in errors.
type Part struct {
	Name string
	*settings.Document
}

// Merge puts documents together. An item that is set in two of them is an error that names both documents, even if they
// agree.
func Merge(parts []Part) (*settings.Document, error) {
	m := merger{of: make(map[string]string)}
	for _, p := range parts {
		m.take(p)
	}
	if err := m.Err(settings.ErrInvalid); err != nil {
		return nil, err
	}
	if err := m.all.Validate(); err != nil {
		return nil, fmt.Errorf("of all documents together: %w", err)
	}
	return &m.all, nil
}

type merger struct {
	problems.List
	all settings.Document
	of  map[string]string // the document in which an item is set
}

func (m *merger) take(p Part) {
	if p.Tuning != nil && m.first(p, "tuning") {
		m.all.Tuning = p.Tuning
	}
	for _, region := range slices.Sorted(maps.Keys(p.RegionTuning)) {
		if m.first(p, fmt.Sprintf("region_tuning %q", region)) {
			if m.all.RegionTuning == nil {
				m.all.RegionTuning = make(map[string]tuning.Tuning)
			}
			m.all.RegionTuning[region] = p.RegionTuning[region]
		}
	}
	for _, n := range p.Namespaces {
		if m.first(p, fmt.Sprintf("namespace %q of workspace %q", n.Namespace, n.Workspace)) {
			m.all.Namespaces = append(m.all.Namespaces, n)
		}
	}
	for _, o := range p.Overrides {
		if m.first(p, fmt.Sprintf("override %q of namespace %q of workspace %q", o.Pattern, o.Namespace, o.Workspace)) {
			m.all.Overrides = append(m.all.Overrides, o)
		}
	}
}

// first reports whether an item is set for the first time.
func (m *merger) first(p Part, what string) bool {
	if earlier, twice := m.of[what]; twice {
		m.AddText("%s: %s is in %s, too", p.Name, what, earlier)
		return false
	}
	m.of[what] = p.Name
	return true
}
