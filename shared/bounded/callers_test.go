package bounded

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func at(i int) netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 32)
}

// A caller that ends its connections and makes new connections still has the share that its calls hold, because a call
// can continue for a while after its connection has ended.
func TestACallerThatComesBackHasItsShare(t *testing.T) {
	var callers Callers
	slots := NewSlots(Calls, 8)
	taken := 0
	for range 8 {
		c := callers.enter(at(1))
		if slots.Take(c) == nil {
			taken++
		}
		callers.leave(at(1))
	}
	if taken != 6 {
		t.Errorf("one address has %d of 8 slots by connecting again, want three quarters", taken)
	}
	if err := slots.Take(callers.enter(at(2))); err != nil {
		t.Errorf("another address: %v", err)
	}
}

// Callers without a connection are removed after a while, and their number is bounded. A caller that connects again is
// not removed.
func TestCallersThatHaveLeftAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var callers Callers
		back := callers.enter(at(0))
		callers.leave(at(0))
		callers.enter(at(0))
		for i := range 2 * awayMax {
			callers.enter(at(1 + i))
			callers.leave(at(1 + i))
		}
		if n := len(callers.byAddress); n != awayMax+1 || callers.away.Len() != awayMax {
			t.Errorf("%d callers are kept, %d of them without a connection", n, callers.away.Len())
		}
		time.Sleep(awayFor)
		callers.enter(at(1))
		callers.leave(at(1))
		if n := len(callers.byAddress); n != 2 || callers.away.Len() != 1 {
			t.Errorf("%d callers are kept after a while, %d of them without a connection", n, callers.away.Len())
		}
		if callers.enter(at(0)) != back {
			t.Error("the caller with a connection is another one")
		}
	})
}
