package dataplane

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/internal/breaker"
	"github.com/weirhq/weir/dataplane/internal/brief"
	"github.com/weirhq/weir/shared/window"
)

// String returns the explanation as one paragraph of text of at most some 3 KB. It cuts long names.
func (x Explanation) String() string {
	var b strings.Builder
	d := &x.Decision
	say := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	verdict := "denied"
	switch {
	case d.Shadowed:
		verdict = "over the limit, and allowed because its namespace, its override or the request is in shadow mode"
	case d.Allowed:
		verdict = "allowed"
	}
	say("%q in %q/%q would be %s: %s of %d in any %v, with this request", brief.Name(x.Identifier),
		brief.Name(x.Workspace), brief.Name(x.Namespace), verdict, brief.Amount(d.Current), d.Limit, x.Duration)
	switch {
	case d.NeverPasses:
		say("; it never passes, because its cost is more than the limit")
	case d.RetryAfter > 0:
		say("; it would pass in %v without other requests", d.RetryAfter)
	}
	if x.Overridden {
		say(". The limit is that of the override %q", brief.Name(d.Override))
	} else {
		say(". The limit is that of the request")
	}
	switch {
	case x.Candidate == 0:
	case d.CandidateDenied:
		say(". The candidate limit of %d would deny it", x.Candidate)
	default:
		say(". The candidate limit of %d would let it pass", x.Candidate)
	}
	if o := x.Other; o != nil {
		side, would := "the trial", "let it pass"
		if o.Stored {
			side = "the stored settings"
		}
		if o.Denied {
			would = "deny it"
		}
		say(". Trial %d of limits is on: the limit of %d by %s would %s", x.Trial, o.Limit, side, would)
	}
	if !x.Known {
		say(". This node does not hold the key, so it has no counts of it")
	} else {
		say("%s", x.sum())
	}
	if x.Mode == window.Estimate.String() {
		say(". The namespace is in estimate mode: it decides at once, by the counts that this node has")
	}
	if x.Leaks {
		say(". The limit is compared with a level that leaks, and not with the sum of both windows")
	}
	if x.AsksOrigin {
		say(". A decision would read the origin first")
	}
	if !x.StrictUntil.IsZero() {
		say(". It was denied lately: until %s a decision reads the origin first",
			x.StrictUntil.UTC().Format(time.TimeOnly))
	}
	if x.Asks != "" && (x.Asks != breaker.Closed.String() || x.Sends != breaker.Closed.String()) {
		say(". The origin is in trouble (breaker of decisions %s, of background sends %s): the outage policy is %s", x.Asks,
			x.Sends, x.Outage)
	}
	if x.Reset != 0 {
		say(". An operator reset it at %s: earlier cost does not count", x.ResetAt.UTC().Format(time.RFC3339))
	}
	say(".")
	return b.String()
}

// sum explains the terms that add up to Decision.Current, without the request's own cost.
func (x *Explanation) sum() string {
	c := &x.Current
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format, args...) }
	say(". In this window its region has accepted %d (%d of it not sent to the origin yet) and others %d", c.Regional,
		c.Unsent, c.Foreign)
	claims := c.Counts - (c.Regional + c.Foreign + c.Carried - c.Credit)
	if claims != 0 {
		say("; %d is claimed by requests that wait for the origin", claims)
	}
	if c.Credit != 0 {
		say("; %d was refunded here after other regions had counted it", c.Credit)
	}
	if c.Carried != 0 {
		say("; %d was carried over when the clock was set back", c.Carried)
	}
	if claims != 0 || c.Credit != 0 || c.Carried != 0 {
		say("; together %d", c.Counts)
	}
	previous, durationMs := max(0, x.Previous.Counts), x.Duration.Milliseconds()
	if x.Gone > 0 {
		say("; of the window before %d count, as %d of %d have left this window", max(0, previous-x.Gone), x.Gone, previous)
		return b.String()
	}
	carried := float64(previous) * x.Weight
	if x.Mode != window.Estimate.String() {
		carried = float64(window.Carried(previous, int64(math.Round(x.Weight*float64(durationMs))), durationMs))
	}
	say("; of the window before %d counts by %.0f %%, as %s", previous, 100*x.Weight, brief.Amount(carried))
	return b.String()
}
