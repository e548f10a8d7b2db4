package settings

import (
	"fmt"
	"maps"
	"slices"
)

// ChangesMax bounds the items of a Change.
const ChangesMax = 500

// Change is what a rollout of limits changes: each item with its state before and after. It says nothing about other
// items. The zero value changes nothing.
type Change struct {
	Namespaces []NamespaceChange `json:"namespaces,omitempty"` // in the order of CompareNamespaces
	Overrides  []OverrideChange  `json:"overrides,omitempty"`  // in the order of CompareOverrides
}

// NamespaceChange changes the settings of a namespace. Before and After name the same namespace and differ. A namespace
// without settings is a DefaultNamespace.
type NamespaceChange struct {
	Before Namespace `json:"before"`
	After  Namespace `json:"after"`
}

// OverrideChange creates, changes or deletes an override. A side that is nil has no override. The sides name the same
// override and differ.
type OverrideChange struct {
	Before *Override `json:"before,omitempty"`
	After  *Override `json:"after,omitempty"`
}

// Name returns the override without its settings.
func (c OverrideChange) Name() Override {
	of := c.After
	if of == nil {
		of = c.Before
	}
	if of == nil {
		return Override{}
	}
	return of.name()
}

func (o Override) name() Override {
	return Override{Workspace: o.Workspace, Namespace: o.Namespace, Pattern: o.Pattern}
}

func (n Namespace) name() Namespace { return Namespace{Workspace: n.Workspace, Namespace: n.Namespace} }

// Difference returns the change that leads from one document to another. Tuning is not a part of it. Items that to
// lacks stay as they are, unless prune deletes them.
func Difference(from, to *Document, prune bool) (c Change) {
	namespaces, overrides := from.index()
	for _, n := range to.Namespaces {
		if was := namespaces.of(n); was != n {
			c.Namespaces = append(c.Namespaces, NamespaceChange{was, n})
		}
		delete(namespaces, n.name())
	}
	for _, o := range to.Overrides {
		was, there := overrides[o.name()]
		switch {
		case !there:
			c.Overrides = append(c.Overrides, OverrideChange{After: &o})
		case was != o:
			c.Overrides = append(c.Overrides, OverrideChange{&was, &o})
		}
		delete(overrides, o.name())
	}
	if prune {
		for _, n := range namespaces {
			if !n.IsDefault() {
				c.Namespaces = append(c.Namespaces, NamespaceChange{n, DefaultNamespace(n.Workspace, n.Namespace)})
			}
		}
		for _, o := range overrides {
			c.Overrides = append(c.Overrides, OverrideChange{Before: &o})
		}
	}
	slices.SortFunc(c.Namespaces, func(a, b NamespaceChange) int { return CompareNamespaces(a.After, b.After) })
	slices.SortFunc(c.Overrides, func(a, b OverrideChange) int { return CompareOverrides(a.Name(), b.Name()) })
	return c
}

// namespaceIndex has namespaces by their names.
type namespaceIndex map[Namespace]Namespace

func (i namespaceIndex) of(n Namespace) Namespace {
	if is, there := i[n.name()]; there {
		return is
	}
	return DefaultNamespace(n.Workspace, n.Namespace)
}

func (d *Document) index() (namespaceIndex, map[Override]Override) {
	namespaces := make(namespaceIndex, len(d.Namespaces))
	for _, n := range d.Namespaces {
		namespaces[n.name()] = n
	}
	overrides := make(map[Override]Override, len(d.Overrides))
	for _, o := range d.Overrides {
		overrides[o.name()] = o
	}
	return namespaces, overrides
}

// Items returns how many items the change has.
func (c Change) Items() int { return len(c.Namespaces) + len(c.Overrides) }

// Reverse returns the change back.
func (c Change) Reverse() (back Change) {
	for _, n := range c.Namespaces {
		back.Namespaces = append(back.Namespaces, NamespaceChange{n.After, n.Before})
	}
	for _, o := range c.Overrides {
		back.Overrides = append(back.Overrides, OverrideChange{o.After, o.Before})
	}
	return back
}

// Apply returns the document with the change made, sorted. It does not check the state before: see Conflicts.
func (c Change) Apply(to *Document) *Document {
	namespaces, overrides := to.index()
	for _, n := range c.Namespaces {
		namespaces[n.After.name()] = n.After
	}
	for _, o := range c.Overrides {
		if delete(overrides, o.Name()); o.After != nil {
			overrides[o.Name()] = *o.After
		}
	}
	after := *to
	after.Namespaces = slices.SortedFunc(maps.Values(namespaces), CompareNamespaces)
	after.Overrides = slices.SortedFunc(maps.Values(overrides), CompareOverrides)
	return &after
}

// Conflicts returns the difference between the state that the change expects and the items of a document: Before is
// what the change expects, and After what is there. It has no items if the change can be made.
func (c Change) Conflicts(in *Document) (conflicts Change) {
	namespaces, overrides := in.index()
	for _, n := range c.Namespaces {
		if is := namespaces.of(n.Before); is != n.Before {
			conflicts.Namespaces = append(conflicts.Namespaces, NamespaceChange{n.Before, is})
		}
	}
	for _, o := range c.Overrides {
		var is *Override
		if there, ok := overrides[o.Name()]; ok {
			is = &there
		}
		if !sameOverride(is, o.Before) {
			conflicts.Overrides = append(conflicts.Overrides, OverrideChange{o.Before, is})
		}
	}
	return conflicts
}

func sameOverride(a, b *Override) bool { return a == b || a != nil && b != nil && *a == *b }

// Validate returns an error unless the change has 1 to ChangesMax items, each once, sorted and valid, and each item
// changes something.
func (c Change) Validate() error {
	if n := c.Items(); n < 1 || n > ChangesMax {
		return fmt.Errorf("%w: the change has %d items (1 to %d)", ErrInvalid, n, ChangesMax)
	}
	for i, n := range c.Namespaces {
		switch {
		case n.Before.name() != n.After.name() || n.Before == n.After:
			return fmt.Errorf("%w: change of namespaces[%d]: before and after want one name, and to differ", ErrInvalid, i)
		case i > 0 && CompareNamespaces(c.Namespaces[i-1].After, n.After) >= 0:
			return fmt.Errorf("%w: change of namespaces[%d] is not in order, or repeats another", ErrInvalid, i)
		}
		for _, side := range []Namespace{n.Before, n.After} {
			if problem := side.Problem(); problem != "" {
				return fmt.Errorf("%w: change of namespaces[%d]: %s", ErrInvalid, i, problem)
			}
		}
	}
	for i, o := range c.Overrides {
		switch {
		case sameOverride(o.Before, o.After) || o.Before != nil && o.After != nil && o.Before.name() != o.After.name():
			return fmt.Errorf("%w: change of overrides[%d]: before and after want one name, and to differ", ErrInvalid, i)
		case i > 0 && CompareOverrides(c.Overrides[i-1].Name(), o.Name()) >= 0:
			return fmt.Errorf("%w: change of overrides[%d] is not in order, or repeats another", ErrInvalid, i)
		}
		for _, side := range []*Override{o.Before, o.After} {
			if side == nil {
				continue
			}
			if problem := side.Problem(); problem != "" {
				return fmt.Errorf("%w: change of overrides[%d]: %s", ErrInvalid, i, problem)
			}
		}
	}
	return nil
}
