package main

import "io"

// writeLeases has a line of each node, and what it says in words.
func writeLeases(w io.Writer, nodes []asked) {
	t := newTable(w)
	t.row("NODE", "VERDICT", "LIMIT", "LEASES", "SLOTS", "OTHERS", "WAITING", "SLOTS END IN")
	for _, n := range nodes {
		x := n.leases
		verdict, ends, others := "asks the origin", "-", "-"
		switch d := x.GetDecision(); {
		case d.GetShadowed():
			verdict = "over the limit, allowed in shadow mode"
		case d.GetAllowed():
			verdict = "granted"
		case d.GetLimit() == 0:
			verdict = "refused"
		}
		if ms := x.GetValidForMs(); ms > 0 {
			ends = span(ms)
		}
		if x.GetKnown() {
			others = digits(x.GetOthers())
		}
		t.row(n.node, verdict, digits(x.GetDecision().GetLimit()), digits(x.GetLeases()), digits(x.GetSlots()),
			others, digits(x.GetWaiters()), ends)
	}
	t.flush()
	writeSummaries(w, nodes)
}
