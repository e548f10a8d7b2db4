package relay

import (
	"encoding/binary"

	"github.com/weirhq/weir/shared/window"
)

// room checks how many entries fit into a payload.
type room struct {
	left   int
	groups map[window.Cell]struct{} // without an identifier
}

const (
	varintMax = binary.MaxVarintLen64
	numberMax = binary.MaxVarintLen32 // of a cell's number
)

func newRoom(bytesMax int) *room {
	return &room{
		left:   bytesMax - 1 - 5*varintMax, // version, section lengths, number of groups, age
		groups: make(map[window.Cell]struct{}),
	}
}

// count adds a count with its cell's name, or with its number if byNumber. It returns false, and adds nothing, if there
// is no room.
func (r *room) count(c *window.Cell, byNumber bool) bool {
	group := groupOf(*c)
	need := numberMax + varintMax
	if !byNumber {
		need += len(c.Identifier) + 4 // two bytes each for the lengths of the shared part and of the rest
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
