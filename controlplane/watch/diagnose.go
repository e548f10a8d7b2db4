package watch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/tuning"
)

// CheckResult is the outcome of a check.
type CheckResult string

// Results, from the best to the worst.
const (
	CheckOK   CheckResult = "ok"
	CheckWarn CheckResult = "warn" // it works, but can cause a failure later
	CheckFail CheckResult = "fail" // it does not work, or lets others in
)

// Check is a check of the system's setup.
type Check struct {
	Area   string // mysql, redis, restate, nodes or control
	Name   string
	Result CheckResult
	What   string // the state that was found
	Do     string // advice; empty when it is ok
}

// Examiner checks an area. It never fails: a dependency that does not answer is a failed check.
type Examiner func(context.Context) []Check

// examineTimeout bounds the time for an area, so that an area that hangs does not hide the others.
const examineTimeout = 10 * time.Second

// Diagnose runs all examiners at once, and returns their checks in order. An area that does not answer in time is a
// failed check.
func Diagnose(ctx context.Context, examiners map[string]Examiner) []Check {
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	var areas []string
	for area := range examiners {
		areas = append(areas, area)
	}
	slices.Sort(areas)
	found := make([][]Check, len(areas))
	var asking sync.WaitGroup
	for i, area := range areas {
		asking.Go(func() {
			for _, c := range examiners[area](ctx) {
				c.Area, c.What, c.Do = area, controlplane.Clip(c.What), controlplane.Clip(c.Do)
				found[i] = append(found[i], c)
			}
		})
	}
	asking.Wait()
	return slices.Concat(found...)
}

// Pass returns a check without a fault.
func Pass(name, what string) Check { return Check{Name: name, Result: CheckOK, What: what} }

// Warn returns a check of a state that works, but can cause a failure later.
func Warn(name, what, do string) Check {
	return Check{Name: name, Result: CheckWarn, What: what, Do: do}
}

// Fail returns a check of a state that does not work, or that lets others in.
func Fail(name, what, do string) Check {
	return Check{Name: name, Result: CheckFail, What: what, Do: do}
}

func ok(name, format string, args ...any) Check { return Pass(name, fmt.Sprintf(format, args...)) }

// ExamineNodes checks clocks and builds by the nodes' heartbeats.
func ExamineNodes(list func(context.Context) (fleet.Fleet, error)) Examiner {
	return func(ctx context.Context) []Check {
		listing, err := list(ctx)
		if err != nil {
			return []Check{Fail("heartbeats", err.Error(), "See the checks of mysql.")}
		}
		live := fleet.Select(listing.Nodes, func(n fleet.Node) bool { return n.Live })
		if len(live) == 0 && len(listing.Nodes) > 0 { // the other checks concern live nodes
			return []Check{heartbeatCheck(listing, live)}
		}
		if len(live) == 0 {
			return []Check{Warn("heartbeats", "no node sends heartbeats",
				"Start nodes with WEIR_MYSQL_DSN; each sends a heartbeat within seconds of its start.")}
		}
		checks := []Check{heartbeatCheck(listing, live)}
		skew := worst(live, func(n fleet.Node) time.Duration { return n.ClockSkew.Abs() })
		clocks := ok("clock skew", "at most %v between a node and the database", skew)
		if skew >= skewWarning {
			off := fleet.Select(live, func(n fleet.Node) bool { return n.ClockSkew.Abs() >= skewWarning })
			clocks = Warn("clock skew", fmt.Sprintf("up to %v between the database and %s", skew, names(off)),
				"Let NTP run there, and on the database's machine if all nodes differ.")
			if skew >= skewCritical {
				clocks.Result = CheckFail
			}
		}
		return append(checks, clocks, buildCheck(live), relayCheck(listing), convergenceCheck(live))
	}
}

// heartbeatCheck reports silent nodes, and nodes beyond the bound of a listing.
func heartbeatCheck(listing fleet.Fleet, live []fleet.Node) Check {
	send := "no node sends heartbeats"
	if len(live) > 0 {
		send = controlplane.CountOf(len(live), "node sends", "nodes send") + " heartbeats"
	}
	var dark []string
	var silent []fleet.Node
	for _, r := range regionsOf(listing) {
		if len(r.live) == 0 {
			dark = append(dark, r.name)
		}
		silent = append(silent,
			fleet.Select(r.dead, func(n fleet.Node) bool { return listing.Now.Sub(n.SeenAt) <= deadTold })...)
	}
	switch {
	case len(dark) > 0:
		return Fail("heartbeats", fmt.Sprintf("%s, and none of %s does any more", send, strings.Join(dark, ", ")),
			"Check that those nodes run, and that one of them reaches both Redis and MySQL: it relays the heartbeats of "+
				"the others.")
	case len(silent) > 0:
		return Warn("heartbeats", fmt.Sprintf("%s, and no longer %s", send, names(silent)),
			"See whether those nodes run, and the log of those that do.")
	case listing.Truncated:
		return Warn("heartbeats", fmt.Sprintf("%s; there are more than %d nodes, and the rest are not checked", send,
			fleet.NodesMax), "Look at the metrics of the nodes.")
	}
	return ok("heartbeats", "%s", send)
}

// ExamineLiveWithin checks, for every stored tuning, that nodes send heartbeats within liveWithin.
// A rollout checks its own tuning when it starts.
func ExamineLiveWithin(newest func(context.Context) ([]tunings.RegionTuning, error),
	liveWithin time.Duration) Examiner {
	const name = "node-live-within"
	return func(ctx context.Context) []Check {
		tunings, err := tunings.InForce(ctx, newest)
		if err != nil {
			return []Check{Fail(name, err.Error(), "See the checks of mysql.")}
		}
		for _, t := range tunings {
			set, err := tuning.Read([]byte(t.Document))
			if err == nil {
				err = set.CheckTimes(tuning.Times{LiveWithin: liveWithin})
			}
			if err != nil {
				return []Check{Fail(name, fmt.Sprintf("the tuning of %s: %v", controlplane.RowName(t.Region), err),
					"Start weir-control with a longer --node-live-within, or roll out a shorter settings_interval_ms.")}
			}
		}
		return []Check{ok(name, "nodes send heartbeats within %v by every stored tuning", liveWithin)}
	}
}

func buildCheck(live []fleet.Node) Check {
	var builds []string
	for _, n := range live {
		if !slices.Contains(builds, n.Build) {
			builds = append(builds, n.Build)
		}
	}
	slices.Sort(builds)
	if len(builds) <= 1 {
		return ok("builds", "all nodes run %s", builds[0])
	}
	return Warn("builds", fmt.Sprintf("nodes run %d builds: %.200q", len(builds), builds),
		"Finish the upgrade: only neighbouring versions are sure to understand each other.")
}

// relayCheck reports regions with a shard that no node relays. Nodes that have only just started get the lease
// within seconds.
func relayCheck(listing fleet.Fleet) Check {
	var without []string
	regions, shards := 0, 0
	for _, r := range regionsOf(listing) {
		by := fleet.RelayedBy(fleet.Select(r.live, func(n fleet.Node) bool {
			return fleet.Relays(n) || n.SentAtMs-n.StartedAtMs >= fleet.UnrelayedMax.Milliseconds()
		}))
		if by.Shards > 0 {
			regions, shards = regions+1, shards+by.Shards
		}
		if missing := by.Missing(); len(missing) > 0 {
			without = append(without, fleet.ShardNames(missing)+" of "+r.name)
		}
	}
	if len(without) > 0 {
		return Fail("relays", "no node relays "+strings.Join(without, ", "),
			"These regions and the others exchange no counts. The log of their nodes says why none gets the lease. The "+
				"lease is in the region's Redis; a relay needs MySQL as well.")
	}
	if regions == 0 {
		return ok("relays", "no node has a relay yet: a relay needs Redis and MySQL")
	}
	return ok("relays", "%s of %s relayed", controlplane.CountOf(shards, "shard", "shards"),
		controlplane.CountOf(regions, "region is", "regions are"))
}

// convergenceCheck reports how late counts of other regions arrive.
func convergenceCheck(live []fleet.Node) Check {
	relaying := fleet.Select(live, fleet.Relays)
	from, lag := slowest(relaying)
	unpublished := worst(relaying, oldestUnpublished)
	switch {
	case lag > lateMin || unpublished > lateMin:
		return Warn("convergence", fmt.Sprintf("changes of %s are up to %v old when they are read, and counts wait up to "+
			"%v to be sent", from, lag, unpublished),
			"weirctl fleet --pairs shows which regions are late. Check MySQL's latency from there.")
	case from == "" && len(regionsOf(fleet.Fleet{Nodes: relaying})) > 1:
		// each relay publishes every few seconds, even if it is only its time
		return Warn("convergence", "no region reports how old the others' changes are, although several are relayed",
			"If they were started just now, repeat this in a minute. Otherwise see the log of the nodes that relay: they "+
				"read no changes.")
	case from == "":
		return ok("convergence", "no change of another region has been read lately")
	}
	return ok("convergence", "changes are at most %v old when they are read, and counts wait at most %v to be sent", lag,
		unpublished)
}
