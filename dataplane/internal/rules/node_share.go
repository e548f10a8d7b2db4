package rules

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/weirhq/weir/shared/window"
)

// NodesMax bounds how many nodes a region has; more would leave no share worth having.
const NodesMax = 10_000

// parseNodeShare returns the default, which is to wait, for an unset node share and together with an error.
func parseNodeShare(text string) (waits bool, err error) {
	switch text {
	case "", "wait":
		return true, nil
	case "flush":
		return false, nil
	}
	return true, fmt.Errorf("%w: node_share is %q (wait or flush)", window.ErrInvalid, text)
}

// NodeShareName returns the name of a node share setting, as parseNodeShare takes it.
func NodeShareName(waits bool) string {
	if waits {
		return "wait"
	}
	return "flush"
}

// setNodes sets how many nodes the region has: by configuration, or else by its heartbeats. Settings in force are not
// changed, so it is called before.
func (s *Settings) setNodes(live int, cfg *Config) {
	s.live = live
	s.Nodes = int64(min(max(1, cmp.Or(cfg.RegionNodes, live)), NodesMax))
	if cfg.Fleet {
		s.NearShift = uint32(bits.Len64(uint64(4*s.Nodes - 1))) // 2^NearShift >= 4 nodes
	}
}
