package settingsfile

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/settings"
	"github.com/weirhq/weir/shared/tuning"
)

// Source is a source of settings that are a value of the program. For example, a program that keeps its settings in its
// own database calls Set when they change. The zero value has no settings. All methods may be called concurrently.
type Source struct {
	mu sync.Mutex
	by inUse
}

// inUse is the last valid document. Its rows are never changed, because callers of Settings share them.
type inUse struct {
	document settings.Document
	rows     store.SettingsRows // without the tuning and the version
	number   int64              // of the document, from 1; 0: none yet
	tuning   int64              // of the document's tuning, from 1
	drawn    string             // distinguishes the numbers of this Source from those of another process
}

var _ store.Settings = (*Source)(nil)

// New returns a source of the settings in d. If d is invalid, the error has a line for each of the first few problems,
// with the field and its bound.
func New(d settings.Document) (*Source, error) {
	s := new(Source)
	if err := s.Set(d); err != nil {
		return nil, err
	}
	return s, nil
}

// Set replaces all settings by a copy of the settings in d. If d is invalid, Set returns an error and keeps the
// previous settings. Empty fields of a namespace have their defaults, as in a file.
//
// A limiter applies the new settings with its next read, 5 s later unless the tuning has another interval. To apply
// them at once, call Limiter.RefreshSettings.
func (s *Source) Set(d settings.Document) error {
	next := inUse{document: copyOf(d)}
	if err := next.document.Validate(); err != nil {
		return err
	}
	for _, n := range next.document.Namespaces {
		next.rows.Namespaces = append(next.rows.Namespaces, namespaceRow(n))
	}
	for _, o := range next.document.Overrides {
		next.rows.Overrides = append(next.rows.Overrides, store.OverrideRow(o))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next.number, next.tuning = s.by.number+1, s.by.tuning
	if next.tuning == 0 || !next.document.SameTuning(&s.by.document) {
		next.tuning++
	}
	if next.drawn = s.by.drawn; next.drawn == "" {
		next.drawn = strconv.FormatUint(rand.Uint64(), 36)
	}
	s.by = next
	return nil
}

// copyOf returns a copy with the defaults of namespaces. It shares nothing that a caller can change.
func copyOf(d settings.Document) settings.Document {
	if d.Tuning != nil {
		fleet := *d.Tuning
		d.Tuning = &fleet
	}
	d.RegionTuning = maps.Clone(d.RegionTuning)
	d.Namespaces, d.Overrides = slices.Clone(d.Namespaces), slices.Clone(d.Overrides)
	for i := range d.Namespaces {
		n := &d.Namespaces[i]
		unset := settings.DefaultNamespace(n.Workspace, n.Namespace)
		n.Mode, n.Outage = cmp.Or(n.Mode, unset.Mode), cmp.Or(n.Outage, unset.Outage)
		n.NodeShare, n.Window = cmp.Or(n.NodeShare, unset.NodeShare), cmp.Or(n.Window, unset.Window)
	}
	return d
}

func namespaceRow(n settings.Namespace) store.NamespaceRow {
	return store.NamespaceRow{Workspace: n.Workspace, Namespace: n.Namespace, Shadow: n.Shadow, Mode: n.Mode,
		Outage: n.Outage, NodeShare: n.NodeShare, Window: store.Window(n.Window), Estimate: n.Estimate}
}

// Settings implements store.Settings. Callers must not change the rows.
func (s *Source) Settings(_ context.Context, region string) (store.SettingsRows, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	rows := s.by.rows
	if s.by.number == 0 {
		return rows, nil
	}
	rows.Version = s.by.drawn + "/" + strconv.FormatInt(s.by.number, 10) + "/" + region
	if tuned := s.by.document.TuningOf(region); tuned != tuning.Default() {
		document, err := tuned.Document()
		if err != nil {
			return store.SettingsRows{}, err
		}
		rows.TuningVersion, rows.TuningDocument = s.by.tuning, document
	}
	return rows, nil
}

// Heartbeat implements store.Settings. It drops the heartbeats, because no other process reads them.
func (*Source) Heartbeat(context.Context, ...heartbeat.Heartbeat) error { return nil }
