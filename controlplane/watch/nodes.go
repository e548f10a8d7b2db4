package watch

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/tuning"
)

// namesTold is how many nodes a finding names.
const namesTold = 3

// region has a region's nodes in a look.
type region struct {
	name       string
	live, dead []fleet.Node
}

// regionsOf groups a fleet's nodes, which are sorted by region.
func regionsOf(fleet fleet.Fleet) (regions []region) {
	for _, n := range fleet.Nodes {
		if len(regions) == 0 || regions[len(regions)-1].name != n.Region {
			regions = append(regions, region{name: n.Region})
		}
		r := &regions[len(regions)-1]
		if n.Live {
			r.live = append(r.live, n)
		} else {
			r.dead = append(r.dead, n)
		}
	}
	return regions
}

// nodeFindings returns the findings that need only heartbeats.
func nodeFindings(listing fleet.Fleet) (findings []Finding) {
	if listing.Truncated {
		findings = append(findings, Finding{
			Kind: FindingFleetCutOff, Severity: SeverityWarning,
			What: fmt.Sprintf("the fleet has more than %d nodes, and the rest are not watched: those after %s",
				fleet.NodesMax,
				lastOf(listing)),
			Do: "Rollouts and retirements wait until the fleet has fewer. Lower --node-dead-after if most of its rows are of " +
				"nodes that are gone. Watch the other nodes by their own metrics.",
		})
	}
	regions := regionsOf(listing)
	for i, r := range regions {
		whole := !listing.Truncated || i < len(regions)-1
		if whole || len(r.live) > 0 {
			findings = append(findings, r.silence(listing.Now)...)
		}
		some := func(kind FindingKind, severity Severity, has func(fleet.Node) bool, what, do string) {
			if which := fleet.Select(r.live, has); len(which) > 0 {
				findings = append(findings, Finding{
					Kind: kind, Subject: r.name, Severity: severity,
					What: fmt.Sprintf("%s in %s: %s", names(which), r.name, what), Do: do,
				})
			}
		}
		if missing := fleet.RelayedBy(r.live).Missing(); whole && len(missing) > 0 {
			findings = append(findings, Finding{
				Kind: FindingRelayMissing, Subject: r.name, Severity: SeverityCritical,
				What: fmt.Sprintf("no node of %s relays %s of its Redis", r.name, fleet.ShardNames(missing)),
				Do: "The region and all others exchange no counts. The log of the nodes says why none gets the lease. The lease " +
					"is in that Redis; a relay needs MySQL as well.",
			})
		}
		down := SeverityWarning
		if count(r.live, fleet.OriginDown) == len(r.live) {
			down = SeverityCritical
		}
		some(FindingOriginDown, down, fleet.OriginDown, "no answer from the region's Redis, or from a part of it",
			"Start that Redis, or let the nodes reach it. Meanwhile they decide by the outage policy of each "+
				"namespace.")
		some(FindingCostDropped, SeverityWarning, func(n fleet.Node) bool {
			return n.Health.DroppedCost > 0
		}, "accepted cost was dropped before the region's Redis had it",
			"The label cause of weir_dropped_cost_total shows the reason: Redis was away for long, or a limit is too small. "+
				"The finding stays until these nodes restart.")
		some(FindingTableFull, SeverityWarning, tableFull,
			"keys find no room in the table: they are decided by Redis, or by a sketch that errs towards denying",
			"See weirctl keys top --hot and the nodes' log, which names the namespace with the most keys; hold back its "+
				"callers, raise entries-max, or add nodes.")
		some(FindingSettingsRefused, SeverityWarning, func(n fleet.Node) bool {
			return n.Health.SettingsProblem != ""
		}, "the newest settings are not in force: "+firstProblem(r.live),
			"Correct what it names (weirctl rollout, override or namespace), or upgrade these nodes.")
		some(FindingNodeProblem, SeverityWarning, func(n fleet.Node) bool { return len(n.Health.Problems) > 0 },
			surroundings(r.live), "Follow its advice. The node checks again every few seconds, and Redis's policy every minute.")
		skew := func(n fleet.Node) time.Duration { return n.ClockSkew.Abs() }
		severity := SeverityWarning
		if slices.ContainsFunc(r.live, func(n fleet.Node) bool { return skew(n) >= skewCritical }) {
			severity = SeverityCritical
		}
		some(FindingClockSkew, severity, func(n fleet.Node) bool {
			return skew(n) >= skewWarning
		}, fmt.Sprintf("the clock differs from the database's by up to %v", worst(r.live, skew)),
			"Let NTP run there, and on the database's machine if all nodes differ: windows begin and end by the node's clock.")
	}
	return findings
}

// lastOf returns the name of the last node of a listing.
func lastOf(fleet fleet.Fleet) string {
	if len(fleet.Nodes) == 0 {
		return "none"
	}
	last := fleet.Nodes[len(fleet.Nodes)-1]
	return last.NodeID + " in " + last.Region
}

// silence returns the findings about nodes without heartbeats.
func (r region) silence(now time.Time) []Finding {
	if len(r.dead) == 0 {
		return nil
	}
	since := func(nodes []fleet.Node, pick func(a, b fleet.Node) int) int64 {
		return slices.MinFunc(nodes, pick).SeenAt.UnixMilli()
	}
	if len(r.live) == 0 {
		return []Finding{{
			Kind: FindingRegionDark, Subject: r.name, Severity: SeverityCritical,
			// since the last of them fell silent
			SinceMs: since(r.dead, func(a, b fleet.Node) int { return b.SeenAt.Compare(a.SeenAt) }),
			What:    fmt.Sprintf("no node of %s sends heartbeats any more: %s", r.name, names(r.dead)),
			Do: "Check that the nodes run, and that one of them reaches both Redis and MySQL: it relays the " +
				"heartbeats of the others. Nodes that run still decide, by their region's counts.",
		}}
	}
	lately := fleet.Select(r.dead, func(n fleet.Node) bool { return now.Sub(n.SeenAt) <= deadTold })
	if len(lately) == 0 {
		return nil
	}
	return []Finding{{
		Kind: FindingNodesDead, Subject: r.name, Severity: SeverityWarning,
		SinceMs: since(lately, func(a, b fleet.Node) int { return a.SeenAt.Compare(b.SeenAt) }),
		What: fmt.Sprintf("in %s %s no heartbeats any more: %s", r.name,
			controlplane.CountOf(len(lately), "node sends", "nodes send"),
			names(lately)),
		Do: fmt.Sprintf("Check that it runs and reaches MySQL. A node removed on purpose leaves this list after %v.",
			deadTold),
	}}
}

// tuningFindings compares nodes with the tuning that their region should have.
func tuningFindings(listing fleet.Fleet, tunings []tunings.RegionTuning) (findings []Finding) {
	for _, r := range regionsOf(listing) {
		version, set := inForce(tunings, r.name)
		if others := fleet.Select(r.live,
			func(n fleet.Node) bool { return n.TuningVersion != version }); len(others) > 0 {
			findings = append(findings, Finding{
				Kind: FindingTuningSkew, Subject: r.name, Severity: SeverityWarning,
				What: fmt.Sprintf("%s in %s: not running version %d of the tuning, which the region has", names(others),
					r.name, version),
				Do: "weirctl fleet shows whether these nodes read settings (settings_at) and which they refuse.",
			})
		}
		rounds := 3 * set.FeedInterval.Std()
		findings = append(findings, r.relayFindings(max(stalledMin, rounds), max(lateMin, rounds))...)
	}
	return findings
}

// differences returns findings about tunings that not all regions with live nodes have.
func differences(fleet fleet.Fleet, tunings []tunings.RegionTuning) []Finding {
	having := map[string][]string{} // by hash
	for _, r := range regionsOf(fleet) {
		if len(r.live) > 0 {
			_, set := inForce(tunings, r.name)
			having[set.Hash()] = append(having[set.Hash()], r.name)
		}
	}
	if len(having) < 2 {
		return nil
	}
	groups := slices.SortedFunc(maps.Values(having), func(a, b []string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a[0], b[0]))
	})
	var text []string
	for _, g := range groups {
		text = append(text, controlplane.Several(g))
	}
	return []Finding{{
		Kind: FindingTuningsDiffer, Severity: SeverityWarning,
		What: fmt.Sprintf("regions have %d different tunings, and no rollout is under way: %s", len(groups),
			strings.Join(text, "; ")),
		Do: "See weirctl tuning history --region REGION for who set them, and weirctl tuning diff. Roll out the tuning " +
			"that all should have. The finding stays as long as a region has its own.",
	}}
}

// inForce returns the version that a region's nodes should run, and its tuning.
func inForce(stored []tunings.RegionTuning, name string) (version int64, set tuning.Tuning) {
	set = tuning.Default()
	for _, of := range []string{"", name} {
		if i := slices.IndexFunc(stored, func(t tunings.RegionTuning) bool { return t.Region == of }); i >= 0 {
			version = stored[i].Version
			if parsed, err := tuning.Read([]byte(stored[i].Document)); err == nil {
				set = parsed
			}
		}
	}
	return version, set
}

// tableFullFor is how long a table counts as full after the last key without room.
const tableFullFor = 5 * time.Minute

func tableFull(n fleet.Node) bool {
	at := n.Health.TableFullAtMs
	return at > 0 && time.Duration(n.SentAtMs-at)*time.Millisecond < tableFullFor
}

// surroundings lists the problems that nodes report, each once.
func surroundings(nodes []fleet.Node) string {
	var all []string
	for _, n := range nodes {
		for _, problem := range n.Health.Problems {
			if !slices.Contains(all, problem) && len(all) < namesTold {
				all = append(all, problem)
			}
		}
	}
	return strings.Join(all, "; ")
}

func firstProblem(nodes []fleet.Node) string {
	for _, n := range nodes {
		if n.Health.SettingsProblem != "" {
			return n.Health.SettingsProblem
		}
	}
	return ""
}

func worst(nodes []fleet.Node, of func(fleet.Node) time.Duration) (d time.Duration) {
	for _, n := range nodes {
		d = max(d, of(n))
	}
	return d
}

func count(nodes []fleet.Node, has func(fleet.Node) bool) int {
	return len(fleet.Select(nodes, has))
}

// names names some nodes.
func names(nodes []fleet.Node) string {
	var some []string
	for _, n := range nodes[:min(len(nodes), namesTold)] {
		some = append(some, n.NodeID)
	}
	text := strings.Join(some, ", ")
	if more := len(nodes) - len(some); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
