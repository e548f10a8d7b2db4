package relay_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
)

// A relay forgets a stream that lacked names half a minute after it has read the stream again. It also forgets the
// stream if the stream ends within a snapshot.
func TestStreamsThatLackedNamesAreForgotten(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	w.run(time.Second)
	c := eu.cell("k", time.Hour)
	for i := range 20 {
		h := hostile{world: w, region: fmt.Sprint("made-up-", i)}
		h.publish(1, relay.EncodeNumber(c, 1, 7))
		h.row(store.FeedRow{Writer: 1, Snapshot: 2})
	}
	w.run(time.Second)
	if n := relay.Lacking(eu.relay); n != 20 {
		t.Fatalf("%d streams lack names, want 20", n)
	}
	for i := range 20 {
		h := hostile{world: w, region: fmt.Sprint("made-up-", i), rows: 2}
		if i < 10 {
			h.row(store.FeedRow{Writer: 1, Snapshot: 2, Last: true})
			continue
		}
		w.feed.Lose(store.Stream{Region: h.region}, 0)
	}
	w.run(time.Minute + 10*time.Second)
	if n := relay.Lacking(eu.relay); n != 0 {
		t.Errorf("%d streams are kept", n)
	}
}

// A relay without a lease forgets the streams that lack names. A stream that ends within a snapshot meanwhile gets no
// later row.
func TestALostLeaseForgetsTheStreamsThatLackNames(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	w.run(time.Second)
	h := hostile{world: w, region: "ends"}
	h.publish(1, relay.EncodeNumber(eu.cell("k", time.Hour), 1, 7))
	h.row(store.FeedRow{Writer: 1, Snapshot: 2})
	w.run(time.Second)
	if n := relay.Lacking(eu.relay); n != 1 {
		t.Fatalf("%d streams lack names, want 1", n)
	}
	eu.relayOrigin.Faults.Fail(errDown)
	w.feed.Lose(store.Stream{Region: h.region}, 0)
	w.run(5 * time.Second)
	if n := relay.Lacking(eu.relay); n != 0 {
		t.Errorf("without a lease %d streams are kept", n)
	}
}
