package redisorigin_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
)

// A prefix that is a pattern to Redis has its own cells scanned, and no others.
func TestAScanTakesThePrefixAsItIs(t *testing.T) {
	server := servers.RedisForTest(t)
	c := cellNow("k", time.Hour)
	add(t, openAt(t, server.Addr(), redisorigin.Options{Prefix: "we"}), store.Cost{Cell: c, Add: 7, Limit: 9})
	for _, prefix := range []string{"w[e]", "w?", "w*", `w\e`, "[we]", "w]"} {
		h := openAt(t, server.Addr(), redisorigin.Options{Prefix: prefix})
		add(t, h, store.Cost{Cell: c, Add: 1, Limit: 9})
		var found []store.Change
		for cursor, begun := uint64(0), false; !begun || cursor != 0; begun = true {
			cells, next, err := h.Scan(t.Context(), 0, cursor, 100)
			if err != nil {
				t.Fatal(err)
			}
			found, cursor = append(found, cells...), next
		}
		if len(found) != 1 || found[0] != (store.Change{Cell: c, Total: 1, Limit: 9}) {
			t.Errorf("prefix %q: the scan finds %+v, want its own cell", prefix, found)
		}
	}
}
