package rules

import (
	"fmt"

	"github.com/weirhq/weir/shared/window"
)

// Outage decides in place of the origin when a decision needed the origin's answer and did
// not get it: the read failed or timed out, the key rests after a failed read, or the breaker of
// its shard is open. The policies open and closed also apply while the shard refuses writes,
// because its answers then lack other nodes' cost. See breaker.Writes.
type Outage uint8

const (
	// OutageLocal decides by this node's own counts. It is the default. Use it if an outage should neither lift limits nor
	// stop all requests.
	OutageLocal Outage = iota

	// OutageOpen lets every cost pass that its limit could ever hold, even past this node's counts. The cost is counted
	// here and sent when the origin is back, so that the counts are right afterwards. Use it if, for example, a denied
	// request costs more than an exceeded limit.
	OutageOpen

	// OutageClosed denies, whatever this node's counts are, and changes nothing. Use it if, for example, the limit
	// protects a resource that must not be overrun.
	OutageClosed
)

func parseOutage(text string) (Outage, error) {
	switch text {
	case "", "local":
		return OutageLocal, nil
	case "open":
		return OutageOpen, nil
	case "closed":
		return OutageClosed, nil
	}
	return OutageLocal, fmt.Errorf("%w: outage is %q (local, open or closed)", window.ErrInvalid, text)
}

// String returns the name of the policy, as parseOutage takes it.
func (p Outage) String() string {
	return [...]string{OutageLocal: "local", OutageOpen: "open", OutageClosed: "closed"}[p]
}
