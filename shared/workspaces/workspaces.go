// Package workspaces holds sets of workspaces, to which tokens of nodes and of weir-control can be
// limited.
package workspaces

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weirhq/weir/shared/window"
)

// Set is a set of workspaces. A nil Set contains all workspaces; any other Set contains at least
// one. A Set does not change.
type Set struct{ names []string } // sorted, without duplicates

// New returns the set of the named workspaces. Without names it returns nil, the set of all
// workspaces. It returns an error if a name's length is outside the bounds of workspaces.
func New(names ...string) (*Set, error) {
	if len(names) == 0 {
		return nil, nil
	}
	for _, name := range names {
		if len(name) < 1 || len(name) > window.WorkspaceBytesMax {
			return nil, fmt.Errorf("a name of %d bytes (1 to %d)", len(name), window.WorkspaceBytesMax)
		}
	}
	return &Set{slices.Compact(slices.Sorted(slices.Values(names)))}, nil
}

// Parse reads names separated by commas. A comma, white space or '%' within a name is written as in
// a URL, for example as %2C. Without names it returns an error, so it never returns the set of all
// workspaces.
func Parse(text string) (*Set, error) {
	names := strings.Split(text, ",")
	for i, escaped := range names {
		name, err := url.PathUnescape(escaped)
		if err != nil {
			return nil, fmt.Errorf("%.64q: %w", escaped, err)
		}
		names[i] = name
	}
	return New(names...)
}

// String returns the names in the form that Parse reads, or "" for all workspaces.
func (s *Set) String() string {
	names := s.Names()
	for i, name := range names {
		names[i] = url.PathEscape(name)
	}
	return strings.Join(names, ",")
}

// All reports whether the set contains all workspaces.
func (s *Set) All() bool { return s == nil }

// Has reports whether the set contains a workspace. It does not allocate.
func (s *Set) Has(workspace string) bool {
	if s == nil {
		return true
	}
	_, has := slices.BinarySearch(s.names, workspace)
	return has
}

// Names returns the sorted names, or nil for all workspaces.
func (s *Set) Names() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.names)
}
