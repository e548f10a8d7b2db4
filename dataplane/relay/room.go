package relay

import (
	"encoding/binary"

	"github.com/weirhq/weir/shared/window"
)

// room adds entries to a payload as long as they fit.
type room struct {
	left   int
	groups map[window.Cell]struct{} // with no identifier
}

const (
	varintMax = binary.MaxVarintLen64
	numberMax = binary.MaxVarintLen32 // of a cell
)

func newRoom(bytesMax int) *room {
	return &room{
		left:   bytesMax - 1 - 5*varintMax, // the version, the lengths of sections, how many groups there are, the age
		groups: make(map[window.Cell]struct{}),
	}
}

// count is of a cell that is told by its name, or by its number.
func (r *room) count(c *window.Cell, byNumber bool) bool {
	group := groupOf(*c)
	need := numberMax + varintMax
	if !byNumber {
		need += len(c.Identifier) + 4 // what is shared and what is not take two bytes each
	}
	if _, ok := r.groups[group]; !ok {
		need += len(c.Workspace) + len(c.Namespace) + 6*varintMax
	}
	if need > r.left {
		return false
	}
	r.left -= need
	r.groups[group] = struct{}{}
	return true
}
