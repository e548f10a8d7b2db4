// Package workspaces is the set of workspaces that a token is valid for, as tokens of nodes and of weir-control have
// it.
package workspaces

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/weirhq/weir/shared/window"
)

// Set is a set of workspaces. A nil Set has all workspaces; any other Set has at least one. A Set is constant.
type Set struct{ names []string } // in order, each once

// New returns the set of some workspaces, and nil, the set of all, if there are no names. It returns an error if a name
// is outside of the bounds of workspaces.
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

// Parse reads names that are separated by commas. Commas, white space and '%' in a name are written as %2C and so on,
// as in a URL. Parse never returns the set of all workspaces: without names it returns an error.
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

// String returns the names as Parse reads them; empty: all workspaces.
func (s *Set) String() string {
	names := s.Names()
	for i, name := range names {
		names[i] = url.PathEscape(name)
	}
	return strings.Join(names, ",")
}

// All reports whether the set has all workspaces.
func (s *Set) All() bool { return s == nil }

// Has reports whether a workspace is in the set. It allocates nothing.
func (s *Set) Has(workspace string) bool {
	if s == nil {
		return true
	}
	_, has := slices.BinarySearch(s.names, workspace)
	return has
}

// Names returns the names in order; nil: all workspaces.
func (s *Set) Names() []string {
	if s == nil {
		return nil
	}
	return slices.Clone(s.names)
}
