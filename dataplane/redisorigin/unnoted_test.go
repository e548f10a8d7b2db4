package redisorigin_test

import (
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
)

// If a relay can't be notified of a change, because the key of the changes holds something else, the call is no
// success: the calls that can be repeated fail, bounded costs stand and are counted as garbage. No count is lost or
// doubled.
func TestChangesThatCannotBeNotedAreReported(t *testing.T) {
	const changesKey = "weir:{origin}:changes"
	server := servers.RedisForTest(t)
	raw := rawClient(t, server.Addr())
	h := openAt(t, server.Addr(), redisorigin.Options{})
	sent, claimed, raised := cellNow("sent", time.Hour), cellNow("claimed", time.Hour), cellNow("raised", time.Hour)
	changes, err := h.Changes(t.Context(), 0, 9)
	if err != nil {
		t.Fatal(err)
	}
	command(t, raw, "SET", changesKey, "x")
	chunk := store.Chunk{Stream: streams.Add(1), Number: 1, Costs: []store.Cost{{Cell: sent, Add: 2, Limit: 9}}}
	_, sendErr := h.Send(t.Context(), chunk)
	raiseErr := h.Raise(t.Context(), 0, changes.Epoch, []store.Change{{Cell: raised, Total: 3, Limit: 9}})
	for what, err := range map[string]error{"send": sendErr, "raise": raiseErr} {
		if err == nil || !strings.Contains(err.Error(), "WRONGTYPE") {
			t.Errorf("%s: %v, want why the change cannot be noted", what, err)
		}
	}
	total := claim(t.Context(), h, store.Cost{Cell: claimed, Add: 4, AtMost: 9, Limit: 9})[0]
	if !total.Added || total.Err != nil || gathered(t, h)["weir_origin_garbage_values_total"] != 1 {
		t.Errorf("up to AtMost: %+v, %v pieces of garbage; want that it stands, and 1", total, gathered(t, h))
	}
	command(t, raw, "DEL", changesKey)
	if _, err := h.Send(t.Context(), chunk); err != nil {
		t.Error(err)
	}
	if got := read(t, h, sent, claimed, raised); got[0] != 2 || got[1] != 4 || got[2] != 3 {
		t.Errorf("the origin has %v, want 2, 4 and 3", got)
	}
}
