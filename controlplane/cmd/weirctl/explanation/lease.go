package explanation

import (
	"io"

	"github.com/weirhq/weir/controlplane/cmd/weirctl/format"
)

// WriteLeases prints a line for each node, and its summary.
func WriteLeases(w io.Writer, nodes []Node) {
	t := format.NewTable(w)
	t.Row("NODE", "VERDICT", "LIMIT", "LEASES", "SLOTS", "OTHERS", "WAITING", "SLOTS END IN")
	for _, n := range nodes {
		x := n.Leases
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
			ends = format.Span(ms)
		}
		if x.GetKnown() {
			others = format.Digits(x.GetOthers())
		}
		t.Row(n.Address, verdict, format.Digits(x.GetDecision().GetLimit()), format.Digits(x.GetLeases()),
			format.Digits(x.GetSlots()),
			others, format.Digits(x.GetWaiters()), ends)
	}
	t.Flush()
	writeSummaries(w, nodes)
}
