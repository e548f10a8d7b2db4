// Package problems collects the errors of a document of settings, each with its place.
package problems

import (
	"errors"
	"fmt"
)

// listedMax is how many problems are listed in full.
const listedMax = 10

// Place is a place in a document.
type Place struct {
	List  string // "" for the document itself
	At    int    // of the item, from 0; -1: the list itself
	Field string // "" for the item itself
	Line  int    // from 1; 0 is unknown
}

func (p Place) String() string {
	s := p.List
	if p.List != "" && p.At >= 0 {
		s += fmt.Sprintf("[%d]", p.At)
	}
	if s != "" && p.Field != "" {
		s += "."
	}
	return s + p.Field
}

// Of returns the place of a field of the item.
func (p Place) Of(field string) Place {
	p.Field = field
	return p
}

// List collects problems. It keeps the first 10, and counts the others. The zero value has none.
type List struct {
	listed []string
	more   int
}

// Add adds the problem of a place.
func (l *List) Add(at Place, format string, args ...any) {
	line := ""
	if at.Line > 0 {
		line = fmt.Sprintf("line %d: ", at.Line)
	}
	l.AddText("%s%s %s", line, at, fmt.Sprintf(format, args...))
}

// AddText adds a problem whose text names its place.
func (l *List) AddText(format string, args ...any) {
	if len(l.listed) >= listedMax {
		l.more++
		return
	}
	l.listed = append(l.listed, fmt.Sprintf(format, args...))
}

// None reports whether the list is empty.
func (l *List) None() bool { return len(l.listed) == 0 }

// First returns the first problem, or "".
func (l *List) First() string {
	if l.None() {
		return ""
	}
	return l.listed[0]
}

// Err returns an error with a line for each problem. Each wraps kind. It returns nil if the list is empty.
func (l *List) Err(kind error) error {
	var errs []error
	for _, text := range l.listed {
		errs = append(errs, fmt.Errorf("%w: %s", kind, text))
	}
	if l.more > 0 {
		errs = append(errs, fmt.Errorf("%w: and %d more", kind, l.more))
	}
	return errors.Join(errs...)
}
