package settings

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/weirhq/weir/shared/estimate"
	"github.com/weirhq/weir/shared/settings/internal/problems"
	"github.com/weirhq/weir/shared/window"
)

// Windows of a namespace. A namespace in the estimate mode can only have cells.
const (
	WindowCells   = "cells"
	WindowPrecise = "precise"
)

const regionBytesMax = 48

// firstProblem returns the first problem that check adds, or "".
func firstProblem(check func(*problems.List, problems.Place)) string {
	var p problems.List
	check(&p, problems.Place{})
	return p.First()
}

// Lines has the line of each item of a document. The zero value is for a document that was not read from a text.
type Lines struct{ Namespaces, Overrides []int }

func lineOf(lines []int, i int) int {
	if i < len(lines) {
		return lines[i]
	}
	return 0
}

// Validate returns the errors for which document.Parse would reject the document.
func (d *Document) Validate() error { return d.ValidateLines(Lines{}) }

// ValidateLines is Validate for a document that was read from a text: the errors name the lines.
func (d *Document) ValidateLines(at Lines) error {
	var p problems.List
	d.check(&p, at)
	return p.Err(ErrInvalid)
}

func (d *Document) check(p *problems.List, at Lines) {
	d.checkTuning(p)
	if n := len(d.Namespaces); n > NamespacesMax {
		p.Add(problems.Place{List: "namespaces", At: -1}, "has %d items (at most %d)", n, NamespacesMax)
	}
	if n := len(d.Overrides); n > OverridesMax {
		p.Add(problems.Place{List: "overrides", At: -1}, "has %d items (at most %d)", n, OverridesMax)
	}
	for i, n := range d.Namespaces {
		n.check(p, problems.Place{List: "namespaces", At: i, Line: lineOf(at.Namespaces, i)})
	}
	for i, o := range d.Overrides {
		o.check(p, problems.Place{List: "overrides", At: i, Line: lineOf(at.Overrides, i)})
	}
	d.checkTogether(p, at)
}

func (d *Document) checkTuning(p *problems.List) {
	if d.Tuning != nil {
		if err := d.Tuning.Validate(); err != nil {
			p.Add(problems.Place{Field: "tuning"}, "is refused: %v", err)
		}
	}
	if n := len(d.RegionTuning); n > RegionsMax {
		p.Add(problems.Place{Field: "region_tuning"}, "has %d regions (at most %d)", n, RegionsMax)
	}
	for _, region := range d.regions() {
		at := problems.Place{List: "region_tuning", At: -1, Field: region}
		checkText(p, at, region, regionBytesMax)
		if err := d.RegionTuning[region].Validate(); err != nil {
			p.Add(at, "is refused: %v", err)
		}
	}
}

// Problem returns the first field that nodes would reject, with its bounds, or "".
func (n *Namespace) Problem() string { return firstProblem(n.check) }

// Problem returns the first field with which the override cannot be set, with its bounds, or "".
func (o *Override) Problem() string { return firstProblem(o.check) }

func (n *Namespace) check(p *problems.List, at problems.Place) {
	checkText(p, at.Of("workspace"), n.Workspace, window.WorkspaceBytesMax)
	checkText(p, at.Of("namespace"), n.Namespace, window.NamespaceBytesMax)
	checkChoice(p, at.Of("mode"), n.Mode, "exact", "estimate")
	checkChoice(p, at.Of("outage"), n.Outage, "local", "open", "closed")
	checkChoice(p, at.Of("node_share"), n.NodeShare, "wait", "flush")
	checkChoice(p, at.Of("window"), n.Window, WindowCells, WindowPrecise)
	if n.Window == WindowPrecise && n.Mode == "estimate" {
		p.Add(at.Of("window"), "is %q and mode is %q (a precise window takes mode exact)", n.Window, n.Mode)
	}
	if _, err := estimate.Parse(n.Estimate); err != nil {
		p.Add(at.Of("estimate"), "is refused: %v", err)
	}
}

func (o *Override) check(p *problems.List, at problems.Place) {
	checkText(p, at.Of("workspace"), o.Workspace, window.WorkspaceBytesMax)
	checkText(p, at.Of("namespace"), o.Namespace, window.NamespaceBytesMax)
	checkText(p, at.Of("pattern"), o.Pattern, window.IdentifierBytesMax)
	if problem := window.PatternProblem(o.Pattern); problem != "" {
		p.Add(at.Of("pattern"), "%s", problem)
	}
	if o.Limit < 0 || o.Limit > window.LimitMax {
		p.Add(at.Of("limit"), "is %d (0 to %d; 0 blocks)", o.Limit, int64(window.LimitMax))
	}
	least, most := window.DurationMin.Milliseconds(), window.DurationMax.Milliseconds()
	if o.DurationMs != 0 && (o.DurationMs < least || o.DurationMs > most) {
		p.Add(at.Of("duration_ms"), "is %d (0, or %d to %d)", o.DurationMs, least, most)
	}
	if o.Candidate < 0 || o.Candidate > window.LimitMax {
		p.Add(at.Of("candidate"), "is %d (0 to %d; 0 for none)", o.Candidate, int64(window.LimitMax))
	}
}

func checkText(p *problems.List, at problems.Place, value string, bytesMax int) {
	switch {
	case strings.TrimSpace(value) == "":
		p.Add(at, "is empty (1 to %d bytes)", bytesMax)
	case len(value) > bytesMax:
		p.Add(at, "is %d bytes long (1 to %d)", len(value), bytesMax)
	case !utf8.ValidString(value):
		p.Add(at, "is not valid UTF-8")
	}
}

func checkChoice(p *problems.List, at problems.Place, value string, choices ...string) {
	if !slices.Contains(choices, value) {
		p.Add(at, "is %.64q (%s)", value, strings.Join(choices, ", "))
	}
}
