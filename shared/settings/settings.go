// Package settings has the settings of a fleet: namespaces, overrides and tuning, with their bounds. It also has the
// changes of settings that rollouts stage. Package document reads and writes all settings as YAML or JSON.
package settings

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/weirhq/weir/shared/tuning"
)

// ErrInvalid is wrapped by every error about a document. The message names each place and its bound.
var ErrInvalid = errors.New("settings document")

// Bounds of a document.
const (
	NamespacesMax = 10_000
	OverridesMax  = 100_000
	RegionsMax    = 1_000
)

// Document holds the settings of a fleet. A namespace or an override that is not in it has no settings.
type Document struct {
	Tuning       *tuning.Tuning // of the fleet; nil: the default
	RegionTuning map[string]tuning.Tuning
	Namespaces   []Namespace
	Overrides    []Override
}

// Namespace holds the settings of a namespace. In a document all but the names may be left out.
type Namespace struct {
	Workspace string `json:"workspace"`
	Namespace string `json:"namespace"`
	Shadow    bool   `json:"shadow,omitempty"`   // lets denied requests pass
	Mode      string `json:"mode"`               // exact (default) or estimate
	Outage    string `json:"outage"`             // local (default), open or closed
	NodeShare string `json:"node_share"`         // wait (default) or flush
	Window    string `json:"window"`             // cells (default) or precise, which the estimate mode does not take
	Estimate  string `json:"estimate,omitempty"` // JSON: settings of the estimate mode; empty for their defaults
}

// Override is the limit of an identifier, or of all identifiers that a network or a pattern with '*' matches. In a
// document all but the names and the limit may be left out.
type Override struct {
	Workspace  string `json:"workspace"`
	Namespace  string `json:"namespace"`
	Pattern    string `json:"pattern"`
	Limit      int64  `json:"limit"`                 // 0 blocks
	DurationMs int64  `json:"duration_ms,omitempty"` // 0 keeps the request's
	Candidate  int64  `json:"candidate,omitempty"`   // evaluated in addition to Limit, without an effect; 0 for none
	Shadow     bool   `json:"shadow,omitempty"`      // lets denied requests pass
}

// DefaultNamespace returns a namespace without settings.
func DefaultNamespace(workspace, namespace string) Namespace {
	return Namespace{Workspace: workspace, Namespace: namespace, Mode: "exact", Outage: "local", NodeShare: "wait",
		Window: WindowCells}
}

// IsDefault reports whether n decides like a namespace without settings.
func (n Namespace) IsDefault() bool { return n == DefaultNamespace(n.Workspace, n.Namespace) }

// CompareNamespaces orders by workspace and namespace.
func CompareNamespaces(a, b Namespace) int {
	return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Namespace, b.Namespace))
}

// CompareOverrides orders by workspace, namespace and pattern.
func CompareOverrides(a, b Override) int {
	return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Namespace, b.Namespace),
		cmp.Compare(a.Pattern, b.Pattern))
}

// TuningOf returns the tuning of a region: its own, or the fleet's, or the default.
func (d *Document) TuningOf(region string) tuning.Tuning {
	if own, ok := d.RegionTuning[region]; ok {
		return own
	}
	if d.Tuning != nil {
		return *d.Tuning
	}
	return tuning.Default()
}

// SameTuning reports whether both documents tune all regions alike.
func (d *Document) SameTuning(other *Document) bool {
	return d.TuningOf("") == other.TuningOf("") && maps.Equal(d.RegionTuning, other.RegionTuning)
}

// regions returns the names in RegionTuning, sorted.
func (d *Document) regions() []string { return slices.Sorted(maps.Keys(d.RegionTuning)) }
