package settings

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirhq/weir/shared/estimate"
	"github.com/weirhq/weir/shared/window"
)

// Windows of a namespace. A namespace in the estimate mode can only have cells.
const (
	windowCells   = "cells"
	windowPrecise = "precise"
)

const (
	regionBytesMax = 48
	problemsMax    = 10 // problems that are listed in full
)

// place is a place in a document.
type place struct {
	list  string // "" for the document itself
	at    int    // of the item, from 0; -1: the list itself
	field string // "" for the item itself
	line  int    // from 1; 0 is unknown
}

func (p place) String() string {
	s := p.list
	if p.list != "" && p.at >= 0 {
		s += fmt.Sprintf("[%d]", p.at)
	}
	if s != "" && p.field != "" {
		s += "."
	}
	return s + p.field
}

func (p place) of(field string) place {
	p.field = field
	return p
}

// problems collects the errors of a document.
type problems struct {
	listed []string
	more   int
}

func (p *problems) add(at place, format string, args ...any) {
	if len(p.listed) >= problemsMax {
		p.more++
		return
	}
	line := ""
	if at.line > 0 {
		line = fmt.Sprintf("line %d: ", at.line)
	}
	p.listed = append(p.listed, fmt.Sprintf("%s%s %s", line, at, fmt.Sprintf(format, args...)))
}

func (p *problems) err() error {
	var errs []error
	for _, text := range p.listed {
		errs = append(errs, fmt.Errorf("%w: %s", ErrInvalid, text))
	}
	if p.more > 0 {
		errs = append(errs, fmt.Errorf("%w: and %d more", ErrInvalid, p.more))
	}
	return errors.Join(errs...)
}

// firstProblem returns the first problem that check adds, or "".
func firstProblem(check func(*problems, place)) string {
	var p problems
	check(&p, place{})
	return strings.Join(p.listed[:min(len(p.listed), 1)], "")
}

// lines are where the items of a document stand; nil when it has no text.
type lines struct{ namespaces, overrides []int }

func lineOf(lines []int, i int) int {
	if i < len(lines) {
		return lines[i]
	}
	return 0
}

// Validate returns the errors for which Parse would reject the document.
func (d *Document) Validate() error {
	var p problems
	d.check(&p, lines{})
	return p.err()
}

func (d *Document) check(p *problems, at lines) {
	d.checkTuning(p)
	if n := len(d.Namespaces); n > NamespacesMax {
		p.add(place{list: "namespaces", at: -1}, "has %d items (at most %d)", n, NamespacesMax)
	}
	if n := len(d.Overrides); n > OverridesMax {
		p.add(place{list: "overrides", at: -1}, "has %d items (at most %d)", n, OverridesMax)
	}
	for i, n := range d.Namespaces {
		n.check(p, place{list: "namespaces", at: i, line: lineOf(at.namespaces, i)})
	}
	for i, o := range d.Overrides {
		o.check(p, place{list: "overrides", at: i, line: lineOf(at.overrides, i)})
	}
	d.checkTogether(p, at)
}

func (d *Document) checkTuning(p *problems) {
	if d.Tuning != nil {
		if err := d.Tuning.Validate(); err != nil {
			p.add(place{field: "tuning"}, "is refused: %v", err)
		}
	}
	if n := len(d.RegionTuning); n > RegionsMax {
		p.add(place{field: "region_tuning"}, "has %d regions (at most %d)", n, RegionsMax)
	}
	for _, region := range d.regions() {
		at := place{list: "region_tuning", at: -1, field: region}
		checkText(p, at, region, regionBytesMax)
		if err := d.RegionTuning[region].Validate(); err != nil {
			p.add(at, "is refused: %v", err)
		}
	}
}

// Problem returns the first field that nodes would reject, with its bounds, or "".
func (n *Namespace) Problem() string { return firstProblem(n.check) }

// Problem returns the first field with which the override cannot be set, with its bounds, or "".
func (o *Override) Problem() string { return firstProblem(o.check) }

func (n *Namespace) check(p *problems, at place) {
	checkText(p, at.of("workspace"), n.Workspace, window.WorkspaceBytesMax)
	checkText(p, at.of("namespace"), n.Namespace, window.NamespaceBytesMax)
	checkChoice(p, at.of("mode"), n.Mode, "exact", "estimate")
	checkChoice(p, at.of("outage"), n.Outage, "local", "open", "closed")
	checkChoice(p, at.of("node_share"), n.NodeShare, "wait", "flush")
	checkChoice(p, at.of("window"), n.Window, windowCells, windowPrecise)
	if n.Window == windowPrecise && n.Mode == "estimate" {
		p.add(at.of("window"), "is %q and mode is %q (a precise window takes mode exact)", n.Window, n.Mode)
	}
	if _, err := estimate.Parse(n.Estimate); err != nil {
		p.add(at.of("estimate"), "is refused: %v", err)
	}
}

func (o *Override) check(p *problems, at place) {
	checkText(p, at.of("workspace"), o.Workspace, window.WorkspaceBytesMax)
	checkText(p, at.of("namespace"), o.Namespace, window.NamespaceBytesMax)
	checkText(p, at.of("pattern"), o.Pattern, window.IdentifierBytesMax)
	if problem := window.PatternProblem(o.Pattern); problem != "" {
		p.add(at.of("pattern"), "%s", problem)
	}
	if o.Limit < 0 || o.Limit > window.LimitMax {
		p.add(at.of("limit"), "is %d (0 to %d; 0 blocks)", o.Limit, int64(window.LimitMax))
	}
	least, most := window.DurationMin.Milliseconds(), window.DurationMax.Milliseconds()
	if o.DurationMs != 0 && (o.DurationMs < least || o.DurationMs > most) {
		p.add(at.of("duration_ms"), "is %d (0, or %d to %d)", o.DurationMs, least, most)
	}
	if o.Candidate < 0 || o.Candidate > window.LimitMax {
		p.add(at.of("candidate"), "is %d (0 to %d; 0 for none)", o.Candidate, int64(window.LimitMax))
	}
}

func checkText(p *problems, at place, value string, bytesMax int) {
	switch {
	case strings.TrimSpace(value) == "":
		p.add(at, "is empty (1 to %d bytes)", bytesMax)
	case len(value) > bytesMax:
		p.add(at, "is %d bytes long (1 to %d)", len(value), bytesMax)
	case !utf8.ValidString(value):
		p.add(at, "is not valid UTF-8")
	}
}

func checkChoice(p *problems, at place, value string, choices ...string) {
	if !slices.Contains(choices, value) {
		p.add(at, "is %.64q (%s)", value, strings.Join(choices, ", "))
	}
}
