package relay_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/store"
)

// If the clock of a region's origin is a year ahead, its counts take no memory in other regions, and the log names the
// region. Its counts of windows that have begun are applied.
func TestCellsOfTheFarFutureAreLeftOut(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	ahead := time.Duration(0)
	us := w.addRegion("us", func() time.Time { return w.now.Add(ahead) }, 1)
	var log bytes.Buffer
	made, err := relay.New(relay.Config{Region: "eu", Holder: "first", Origin: eu.relayOrigin, Feed: w.feed, Counts: w.counts, Clock: w.clock,
		Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	eu.relay = made
	w.run(time.Second)
	ahead = 365 * 24 * time.Hour
	for range 50 {
		us.accept(us.cell("many", time.Minute), 50, 100)
		us.accept(us.cell("few", time.Minute), 1, 100)
		w.run(time.Second)
		ahead += time.Minute
	}
	if s := relay.Sizes(eu.relay); s.Cells > 0 {
		t.Errorf("eu holds %+v", s)
	}
	if n := strings.Count(log.String(), "region=us"); n != 1 {
		t.Errorf("in 50 s us was named %d times:\n%s", n, log.String())
	}
	ahead = 0
	c := us.cell("now", time.Minute)
	us.accept(c, 50, 100)
	w.run(time.Second)
	if got := eu.total(c).Foreign; got != 50 {
		t.Errorf("of a window that has begun eu knows %d of 50", got)
	}
}

// speechless is an origin that grants leases and fails every call that would return its time.
type speechless struct{ store.FullOrigin }

func (speechless) Changes(context.Context, int, int) (store.Changes, error) {
	return store.Changes{}, errDown
}

// A relay reads no rows before its origin has returned its time, because without that time it cannot recognize cells of
// the far future.
func TestFeedWaitsForTheOriginsTime(t *testing.T) {
	w := newWorld(t, "eu")
	eu := w.regions[0]
	c := eu.cell("k", time.Minute)
	c.Sequence += 1_000_000
	row := store.FeedRow{Stream: store.Stream{Region: "us"}, Sequence: 1, Writer: 1, Payload: relay.Encode(c)}
	if err := w.feed.Append(t.Context(), row); err != nil {
		t.Fatal(err)
	}
	eu.relay = eu.relayOver("first", speechless{eu.relayOrigin}, w.feed, w.counts)
	w.run(time.Second)
	if s := relay.Sizes(eu.relay); s.Cells > 0 {
		t.Errorf("eu holds %+v", s)
	}
}
