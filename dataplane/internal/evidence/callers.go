package evidence

import (
	"sync/atomic"

	"github.com/weirhq/weir/shared/heartbeat"
)

// callersRoom is the room of callers: a power of two, of which at most a third is used.
const callersRoom = 1 << 15

// callers is a set of hashes of keys. When it holds heartbeat.CallersMax hashes, it ignores others. Its zero value is
// empty.
type callers struct {
	n     atomic.Int64
	slots [callersRoom]atomic.Uint64 // 0 is free
}

// add takes no lock, and never waits.
func (c *callers) add(hash uint64) {
	hash = max(hash, 1)
	if c.n.Load() >= heartbeat.CallersMax {
		return
	}
	for at := hash; ; at++ { // ends, because most slots are free
		slot := &c.slots[at%callersRoom]
		switch is := slot.Load(); {
		case is == hash:
			return
		case is != 0:
			continue
		case slot.CompareAndSwap(0, hash):
			c.n.Add(1)
			return
		case slot.Load() == hash:
			return
		}
	}
}

func (c *callers) len() int64 { return min(c.n.Load(), heartbeat.CallersMax) }
