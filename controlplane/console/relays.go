package console

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// relayGrace is the time that a node may need until it reports that it relays, after it has started or has taken over a
// lease.
const relayGrace = 30 * time.Second

// Relays reports whether the node relays a shard of its region's Redis.
func (n *nodeView) Relays() bool { return n.GetLive() && len(n.GetHealth().GetRelay().GetHeld()) > 0 }

// Shards lists the shards that the node relays, for example "shards 0, 2".
func (n *nodeView) Shards() string { return shardsInWords(n.GetHealth().GetRelay().GetHeld()) }

func shardsInWords(shards []int32) string {
	const most = 8
	var names []string
	for _, shard := range shards[:min(len(shards), most)] {
		names = append(names, strconv.Itoa(int(shard)))
	}
	text := "shards " + strings.Join(names, ", ")
	if len(shards) == 1 {
		text = "shard " + names[0]
	}
	if more := len(shards) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// judgeRelay adds the problems of a node's relay.
func (n *nodeView) judgeRelay(nowMs int64, say func(state, format string, args ...any)) {
	if !n.Relays() {
		return
	}
	r := n.GetHealth().GetRelay()
	n.late(say, nowMs, r.GetInStepAtMs(), "relays "+n.Shards()+", and has exchanged no counts with other regions")
	if state := lateness(r.GetUnpublishedMs()); state != "ok" {
		say(state, "its oldest unsent count is %s old", span(time.Duration(r.GetUnpublishedMs())*time.Millisecond))
	}
	if n.Delay.Known && n.Delay.State != "ok" {
		say(n.Delay.State, "counts of other regions arrive late: %s at the 99th percentile",
			span(time.Duration(n.Delay.P99)*time.Millisecond))
	}
}

// delayOf returns the convergence delay of the slowest region whose changes a relaying node reads.
func delayOf(n *controlv1.Node) (d delay) {
	r := n.GetHealth().GetRelay()
	if len(r.GetHeld()) > 0 {
		for _, ms := range r.GetLagP99Ms() {
			d.Known, d.P99 = true, max(d.P99, ms)
		}
	}
	d.State = lateness(d.P99)
	return d
}

// relayed adds a live node's relay to its region.
func (r *regionView) relayed(n *nodeView, nowMs int64) {
	relay := n.GetHealth().GetRelay()
	if n.Relays() {
		r.held = append(r.held, relay.GetHeld()...)
		r.Unpublished = max(r.Unpublished, relay.GetUnpublishedMs())
		r.Relays = append(r.Relays, n.GetNodeId())
	}
	if n.Relays() || sinceNode(n.Node, nowMs, n.GetStartedAtMs()) >= relayGrace.Milliseconds() {
		r.shards = max(r.shards, relay.GetShards())
	}
}

// unrelayed returns the shards that no live node relays.
func (r *regionView) unrelayed() (shards []int32) {
	for shard := range r.shards {
		if !slices.Contains(r.held, shard) {
			shards = append(shards, shard)
		}
	}
	return shards
}
