package rules

import (
	"cmp"
	"fmt"
	"math/bits"

	"github.com/weirhq/weir/shared/window"
)

// NodesMax bounds how many nodes a region has; more would leave no share worth having.
const NodesMax = 10_000

func parseNodeShare(text string) (waits bool, err error) {
	switch text {
	case "", "flush":
		return false, nil
	case "wait":
		return true, nil
	}
	return false, fmt.Errorf("%w: node_share is %q (flush or wait)", window.ErrInvalid, text)
}

// NodeShareName is the inverse of parseNodeShare.
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
