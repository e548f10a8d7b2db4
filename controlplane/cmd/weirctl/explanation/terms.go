package explanation

import (
	"fmt"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// term is a line of an explanation. It is left out if it is empty for all nodes.
type term struct {
	name, from string
	atMs       func(*weirv1.ExplainResponse) int64 // time of its source; 0: unknown
	value      func(*weirv1.ExplainResponse) string
}

var terms = []term{
	{"verdict", "this node", asOfNow, func(x *weirv1.ExplainResponse) string {
		switch d := x.GetDecision(); {
		case d.GetShadowed():
			return "over the limit, allowed in shadow mode"
		case d.GetAllowed():
			return "allowed"
		}
		return "denied"
	}},
	{"compared", "current + carried whole units, with the request", asOfNow, func(x *weirv1.ExplainResponse) string {
		d := x.GetDecision()
		return fmt.Sprintf("%.4g of %s per %s", d.GetCurrent(), format.Digits(d.GetLimit()), format.Span(x.GetDurationMs()))
	}},
	{"passes in", "without other requests", never, func(x *weirv1.ExplainResponse) string {
		if x.GetDecision().GetNeverPasses() {
			return "never"
		}
		if ms := x.GetDecision().GetRetryAfterMs(); ms > 0 {
			return format.Span(ms)
		}
		return ""
	}},
	{"override", "settings", settingsAt, func(x *weirv1.ExplainResponse) string { return x.GetDecision().GetOverride() }},
	{"current, since", "clock", never, func(x *weirv1.ExplainResponse) string {
		return format.Moment(x.GetCurrent().GetStartMs())
	}},
	{"  of this region", "the region's origin, and this node", refreshedAt, current((*weirv1.ExplainedCell).GetRegional)},
	{"  not sent yet", "this node", asOfNow, current((*weirv1.ExplainedCell).GetUnsent)},
	{"  of other regions", "the region's origin", refreshedAt, current((*weirv1.ExplainedCell).GetForeign)},
	{"  refunded", "this node", asOfNow, some(current((*weirv1.ExplainedCell).GetCredit))},
	{"  counts", "this node", asOfNow, current((*weirv1.ExplainedCell).GetCounts)},
	{"  to be restored", "the origin has lost it", asOfNow, func(x *weirv1.ExplainResponse) string {
		if x.GetCurrent().GetRestores() {
			return "yes"
		}
		return ""
	}},
	{"previous", "as current", never, func(x *weirv1.ExplainResponse) string {
		if isPrecise(x) {
			return format.Digits(x.GetPrevious().GetCounts())
		}
		return fmt.Sprintf("%s by %.0f %%", format.Digits(x.GetPrevious().GetCounts()), 100*x.GetWeight())
	}},
	{"  left the window", "this node", asOfNow, func(x *weirv1.ExplainResponse) string {
		if !isPrecise(x) {
			return ""
		}
		return format.Digits(x.GetGone())
	}},
	{"asks the origin", "this node", asOfNow,
		func(x *weirv1.ExplainResponse) string { return format.Yes(x.GetAsksOrigin()) }},
	{"strict until", "a denial", never, func(x *weirv1.ExplainResponse) string {
		if ms := x.GetStrictUntilMs(); ms > 0 {
			return format.Moment(ms)
		}
		return ""
	}},
	{"origin", "breakers of decisions, of background sends", asOfNow, func(x *weirv1.ExplainResponse) string {
		if x.GetAsks() == "" {
			return ""
		}
		return x.GetAsks() + ", " + x.GetSends()
	}},
	{"mode", "settings", settingsAt, func(x *weirv1.ExplainResponse) string {
		return fmt.Sprintf("%s, outage %s", x.GetMode(), x.GetOutage())
	}},
	{"node share", "settings", settingsAt, (*weirv1.ExplainResponse).GetNodeShare},
	{"window", "settings", settingsAt, (*weirv1.ExplainResponse).GetWindow},
	{"tuning", "settings", settingsAt, func(x *weirv1.ExplainResponse) string {
		return fmt.Sprint("version ", x.GetTuningVersion())
	}},
	{"reset", "settings", func(x *weirv1.ExplainResponse) int64 {
		return x.GetResetAtMs()
	}, func(x *weirv1.ExplainResponse) string {
		if g := x.GetResetGeneration(); g > 0 {
			return fmt.Sprint("generation ", g)
		}
		return ""
	}},
	{"key is in memory", "this node", asOfNow, func(x *weirv1.ExplainResponse) string { return format.Yes(x.GetKnown()) }},
}

func asOfNow(x *weirv1.ExplainResponse) int64     { return x.GetAtMs() }
func settingsAt(x *weirv1.ExplainResponse) int64  { return x.GetSettingsAtMs() }
func refreshedAt(x *weirv1.ExplainResponse) int64 { return x.GetRefreshedAtMs() }
func never(*weirv1.ExplainResponse) int64         { return 0 }

func current(count func(*weirv1.ExplainedCell) int64) func(*weirv1.ExplainResponse) string {
	return func(x *weirv1.ExplainResponse) string { return format.Digits(count(x.GetCurrent())) }
}

// some returns a value that is empty instead of 0, so that the term is left out.
func some(value func(*weirv1.ExplainResponse) string) func(*weirv1.ExplainResponse) string {
	return func(x *weirv1.ExplainResponse) string {
		if v := value(x); v != "0" {
			return v
		}
		return ""
	}
}

// isPrecise reports whether the key's namespace has a precise window. The previous cell then counts in full, except the
// part that has left the window.
func isPrecise(x *weirv1.ExplainResponse) bool { return x.GetWindow() == "precise" }
