package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// skewWorthTellingMs is the difference of clocks in ms from which decisions are affected.
const skewWorthTellingMs = 1000

type fleetCommand struct {
	again
	Pairs bool `help:"Show how late each region reads the changes of each other region, instead of nodes."`
}

func (f fleetCommand) Run(c *call) error {
	return f.look(c, func(c *call) error {
		answer, err := apiclient.Ask(c.ctx, c.Control.Fleet, &controlv1.FleetRequest{})
		if err != nil {
			return err
		}
		if f.Pairs {
			return c.print(answer, func(w io.Writer) { writePairs(w, answer.GetPairs()) })
		}
		return c.print(answer, func(w io.Writer) { writeFleet(w, answer) })
	})
}

func writeFleet(w io.Writer, f *controlv1.FleetResponse) {
	if len(f.GetNodes()) == 0 {
		_, _ = fmt.Fprintln(w, "no node has sent a heartbeat: a node with MySQL configured sends one within "+
			"seconds of its start")
		return
	}
	regions, live := map[string]bool{}, int64(0)
	t := format.NewTable(w)
	t.Row("REGION", "NODE", "STATE", "SEEN", "BUILD", "TUNING", "SKEW", "ALLOWED", "DENIED", "PENDING",
		"RELAYS", "PROBLEMS")
	for _, n := range f.GetNodes() {
		regions[n.GetRegion()] = true
		state := "not live"
		if n.GetLive() {
			state = "live"
			live++
		}
		h := n.GetHealth()
		t.Row(n.GetRegion(), n.GetNodeId(), state, format.Span(n.GetAgeMs())+" ago", n.GetBuild(),
			tuningVersion(n.GetTuningVersion()), format.Span(n.GetClockSkewMs()),
			format.Digits(h.GetAllowedTotal()), format.Digits(h.GetDeniedTotal()), format.Digits(h.GetPendingCost()), relayed(n),
			problems(n))
	}
	t.Flush()
	_, _ = fmt.Fprintf(w, "\n%s, %s, %s live\n", format.Plural(int64(len(regions)), "region"),
		format.Plural(int64(len(f.GetNodes())), "node"), format.Digits(live))
	if ms, any := oldestUnpublished(f); any {
		_, _ = fmt.Fprintf(w, "counts wait at most %s before they are sent to other regions\n", format.Span(ms))
	}
	if f.GetTruncated() {
		_, _ = fmt.Fprintln(w, "the fleet has more nodes than one answer holds: these are the first by region and name")
	}
}

func writePairs(w io.Writer, pairs []*controlv1.ConvergencePair) {
	format.List(w, "not measured: no relay has lately read changes of another region",
		[]string{"TO", "FROM", "99 OF 100 WITHIN", "NODES"}, pairs, func(t format.Table, p *controlv1.ConvergencePair) {
			t.Row(p.GetTo(), p.GetFrom(), format.Span(p.GetP99Ms()), format.Digits(int64(p.GetNodes())))
		})
}

// relayed lists the shards of its region's Redis that a node relays.
func relayed(n *controlv1.Node) string {
	held := n.GetHealth().GetRelay().GetHeld()
	if len(held) == 0 || !n.GetLive() {
		return "-"
	}
	const most = 4
	var names []string
	for _, shard := range held[:min(len(held), most)] {
		names = append(names, fmt.Sprint(shard))
	}
	if len(held) > most {
		names = append(names, "…")
	}
	return strings.TrimPrefix(format.Plural(int64(len(held)), "shard"), format.Digits(int64(len(held)))+" ") + " " +
		strings.Join(names, ", ")
}

// oldestUnpublished returns the age in ms of the oldest count that a relay has not published. any is false without a
// relay.
func oldestUnpublished(f *controlv1.FleetResponse) (ms int64, any bool) {
	for _, n := range f.GetNodes() {
		if r := n.GetHealth().GetRelay(); n.GetLive() && len(r.GetHeld()) > 0 {
			ms, any = max(ms, r.GetUnpublishedMs()), true
		}
	}
	return ms, any
}

func tuningVersion(version int64) string {
	if version == 0 {
		return "default"
	}
	return fmt.Sprint(version)
}

// problems lists a node's problems that need attention.
func problems(n *controlv1.Node) string {
	var found []string
	if dropped := n.GetHealth().GetDroppedCostTotal(); dropped > 0 {
		found = append(found, format.Digits(dropped)+" cost dropped")
	}
	if skew := n.GetClockSkewMs(); skew >= skewWorthTellingMs || skew <= -skewWorthTellingMs {
		found = append(found, "its clock is off")
	}
	if problem := n.GetHealth().GetSettingsProblem(); problem != "" {
		found = append(found, "settings: "+problem)
	}
	if problem := n.GetHealthProblem(); problem != "" {
		found = append(found, problem)
	}
	if len(found) == 0 {
		return "-"
	}
	return strings.Join(found, "; ")
}
