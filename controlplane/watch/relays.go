package watch

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/controlplane/fleet"
)

// relayFindings returns the findings about the nodes that relay a region: a relay that hangs, and counts that arrive
// late. Times of a node are by its own clock.
func (r region) relayFindings(stalled, late time.Duration) (findings []Finding) {
	relaying := fleet.Select(r.live, fleet.Relays)
	// a time in the future is from before a clock was set back, and nothing has succeeded since
	hangs := func(n fleet.Node) bool {
		return (time.Duration(n.SentAtMs-max(n.Health.Relay.InStepAtMs, n.StartedAtMs)) * time.Millisecond).Abs() > stalled
	}
	if which := fleet.Select(relaying, hangs); len(which) > 0 {
		findings = append(findings, Finding{
			Kind: FindingRelayStalled, Subject: r.name, Severity: SeverityCritical,
			What: fmt.Sprintf("%s in %s: the relay has sent or read no changes for more than %v", names(which), r.name, stalled),
			Do:   "Check the log of these nodes and MySQL. Meanwhile the counts that regions have of each other grow old.",
		})
	}
	if which := fleet.Select(relaying,
		func(n fleet.Node) bool { return oldestUnpublished(n) > late }); len(which) > 0 {
		findings = append(findings, r.late(
			fmt.Sprintf("%s in %s: counts have waited up to %v to be sent to other regions",
				names(which), r.name, worst(which, oldestUnpublished))))
	} else if from, lag := slowest(relaying); lag > late {
		findings = append(findings, r.late(
			fmt.Sprintf("changes of %s are up to %v old when %s reads them", from, lag, r.name)))
	}
	return findings
}

func (r region) late(what string) Finding {
	return Finding{
		Kind: FindingRelayLate, Subject: r.name, Severity: SeverityWarning, What: what,
		Do: "weirctl fleet --pairs shows which regions are late. Check MySQL's latency from there. Callers who use several " +
			"regions can exceed their limits meanwhile.",
	}
}

func oldestUnpublished(n fleet.Node) time.Duration {
	return time.Duration(n.Health.Relay.UnpublishedMs) * time.Millisecond
}

// slowest returns the region whose changes these relaying nodes read latest.
func slowest(relaying []fleet.Node) (from string, lag time.Duration) {
	var pairs []fleet.Pair
	for _, n := range relaying {
		for name, ms := range n.Health.Relay.LagP99Ms {
			pairs = append(pairs, fleet.Pair{From: name, P99Ms: ms})
		}
	}
	if len(pairs) == 0 {
		return "", 0
	}
	p := slices.MaxFunc(pairs, func(a, b fleet.Pair) int {
		return cmp.Or(cmp.Compare(a.P99Ms, b.P99Ms), cmp.Compare(b.From, a.From))
	})
	return p.From, time.Duration(p.P99Ms) * time.Millisecond
}
