package network

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// farOrigin returns an origin that is 100 ms away.
func farOrigin() (*Origin, *memstore.Origin) {
	servers := memstore.NewOrigin(memstore.OriginOptions{})
	return &Origin{FullOrigin: servers.Client(), Link: testLink(Profile{Delay: 100 * time.Millisecond}), Meters: &OriginMeters{}}, servers
}

func testLink(p Profile) *Link {
	return &Link{Profile: p, Stream: func(string) *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }}
}

func originCell(identifier string) window.Cell {
	key := window.Key{Workspace: "acme", Namespace: "api", Identifier: identifier, Duration: time.Minute}
	return window.Cell{Key: key, Sequence: window.Sequence(time.Now().UnixMilli(), key.DurationMs())}
}

func chunkOf(number int64, c window.Cell, add int64) store.Chunk {
	return store.Chunk{Stream: 7, Number: number, Costs: []store.Cost{{Cell: c, Add: add, Limit: 100}}}
}

// boundedOf returns a chunk with a cost that is added up to a total.
func boundedOf(number int64, c window.Cell, add, atMost int64) store.Chunk {
	return store.Chunk{Stream: 8, Number: number, Costs: []store.Cost{{Cell: c, Add: add, AtMost: atMost}}}
}

// within returns a context that ends after d.
func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// If a link is cut, repeated calls lose nothing and count nothing twice.
func TestACutOriginCountsWhatIsRepeatedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, servers := farOrigin()
		c := originCell("k")
		h.Link.Set(func(l *Link) { l.Cut = true })
		if _, err := h.Send(within(t, time.Second), chunkOf(1, c, 5)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("over a cut link: %v", err)
		}
		time.Sleep(time.Minute)
		if got := servers.Totals()[c].Region; got != 0 {
			t.Errorf("a request that was lost has counted %d", got)
		}
		h.Link.Set(func(l *Link) { l.Cut = false })
		for range 2 {
			reply, err := h.Send(within(t, time.Second), chunkOf(1, c, 5))
			if err != nil || reply.Totals[0].Region != 5 {
				t.Errorf("repeated: %+v, %v", reply, err)
			}
		}
	})
}

// A call whose reply is lost was applied, although its caller gets an error.
func TestALostReplyOfAnOriginIsApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, servers := farOrigin()
		c := originCell("k")
		h.Link.Set(func(l *Link) { l.Parts = map[int]Part{0: {Mute: 1}} })
		if _, err := h.Send(within(t, time.Second), chunkOf(1, c, 5)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("send: %v", err)
		}
		_, err := h.Send(within(t, time.Second), boundedOf(1, c, 2, 100))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrNotApplied) {
			t.Errorf("a bounded cost: %v", err)
		}
		if got := servers.Totals()[c].Region; got != 7 {
			t.Errorf("the origin has counted %d of 7", got)
		}
		h.Link.Set(func(l *Link) { l.Parts, l.Down = nil, true })
		if _, err := h.Send(t.Context(), boundedOf(2, c, 2, 100)); !errors.Is(err, errRefused) ||
			!errors.Is(err, store.ErrNotApplied) {
			t.Errorf("a chunk that is refused: %v", err)
		}
	})
}

// A call arrives even after its caller has given up.
func TestALateCallReachesTheOrigin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, servers := farOrigin()
		c := originCell("k")
		if _, err := h.Send(within(t, 10*time.Millisecond), chunkOf(1, c, 5)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("given up after 10 ms: %v", err)
		}
		for _, step := range []struct {
			after time.Duration
			want  int64
		}{{39 * time.Millisecond, 0}, {2 * time.Millisecond, 5}} {
			time.Sleep(step.after)
			synctest.Wait()
			if got := servers.Totals()[c].Region; got != step.want {
				t.Errorf("%v later the origin has %d, want %d", step.after, got, step.want)
			}
		}
	})
}

// Messages arrive in order. While the link is cut they are lost, and the next answer has their totals.
func TestMessagesStopWhileCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, servers := farOrigin()
		ctx, stop := context.WithCancel(t.Context())
		type announcement struct {
			count int64
			after time.Duration
		}
		var all []announcement
		var appliedAt time.Time
		ended := make(chan error, 1)
		go func() {
			ended <- h.Listen(ctx, 0, func(m []store.Foreign) { all = append(all, announcement{m[0].Count, time.Since(appliedAt)}) })
		}()
		time.Sleep(time.Second)
		c := originCell("k")
		for i, cut := range []bool{false, true, false} {
			h.Link.Set(func(l *Link) { l.Cut = cut })
			appliedAt = time.Now()
			if _, err := servers.Apply(t.Context(), 0, []store.Foreign{{Cell: c, Count: int64(i + 1)}}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if want := (announcement{1, 50 * time.Millisecond}); len(all) != 2 || all[0] != want || all[1].count != 3 {
			t.Errorf("heard %v", all)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("ended with %v", err)
		}
	})
}

// If a connection is refused, Listen returns an error.
func TestListeningEndsWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, servers := farOrigin()
		ended := make(chan error, 1)
		listen := func() { ended <- h.Listen(t.Context(), 0, func([]store.Foreign) {}) }
		go listen()
		time.Sleep(time.Second)
		h.Link.Set(func(l *Link) { l.Down = true })
		if _, err := servers.Apply(t.Context(), 0, []store.Foreign{{Cell: originCell("k"), Count: 1}}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, errRefused) {
			t.Errorf("ended with %v", err)
		}
		go listen()
		if err := <-ended; !errors.Is(err, errRefused) {
			t.Errorf("while it is down: %v", err)
		}
	})
}

// Commands are counted as redisorigin causes them: some for each call, and some for each cell.
func TestOriginCallsAreMetered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := farOrigin()
		ctx, c := t.Context(), originCell("k")
		_, sendErr := h.Send(ctx, chunkOf(1, c, 5))
		changes, changesErr := h.Changes(ctx, 0, 10)
		ackErr := h.Ack(ctx, 0, changes.Cells)
		_, getErr := h.Read(ctx, []window.Cell{c, originCell("other")})
		if err := errors.Join(sendErr, changesErr, ackErr, getErr); err != nil {
			t.Fatal(err)
		}
		if left, err := h.Changes(ctx, 0, 10); err != nil || len(left.Cells) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		if trips, commands := h.Meters.Trips.Load(), h.Meters.Commands.Load(); trips != 5 || commands != 7+2+7+1+2+1+3+2+7 {
			t.Errorf("%d round trips, %d commands", trips, commands)
		}
	})
}

// A post that gets lost does not arrive, a post that is sent twice arrives twice, and a sender never waits.
func TestPostsArriveAsOftenAsTheLinkHasThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link, began := testLink(Profile{Delay: time.Second, Twice: 1}), time.Now()
		var arrived atomic.Int64
		post := func() { link.Post("op", func() { arrived.Add(1) }) }
		post()
		link.Set(func(l *Link) { l.Cut = true })
		post()
		link.Set(func(l *Link) { l.Cut, l.Profile.Twice = false, 0 })
		post()
		if time.Since(began) > 0 || arrived.Load() > 0 {
			t.Errorf("after %v %d have arrived", time.Since(began), arrived.Load())
		}
		link.Calls.Wait()
		if took := time.Since(began); arrived.Load() != 3 || took != time.Second/2 {
			t.Errorf("%d have arrived after %v, want 3 after half a round trip", arrived.Load(), took)
		}
	})
}

// If a link repeats calls, each arrives twice, and the reply is the result of the second.
func TestAnOriginHearsARepeatedCallTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, servers := farOrigin()
		c := originCell("k")
		h.Link.Set(func(l *Link) { l.Profile.Twice = 1 })
		began := time.Now()
		sent, err := h.Send(within(t, time.Second), chunkOf(1, c, 5))
		if err != nil || sent.Totals[0].Region != 5 {
			t.Errorf("send: %+v, %v", sent, err)
		}
		if took := time.Since(began); took != 150*time.Millisecond {
			t.Errorf("send took %v, want the way there twice, and back", took)
		}
		claimed, err := h.Send(within(t, time.Second), boundedOf(1, c, 2, 7))
		if err != nil || !claimed.Totals[0].Added || claimed.Totals[0].Region != 7 {
			t.Errorf("a bounded cost: %+v, %v", claimed, err)
		}
		if trips := h.Meters.Trips.Load(); trips != 4 {
			t.Errorf("%d calls have arrived, want 4", trips)
		}
		if total := servers.Totals()[c].Region; total != 7 {
			t.Errorf("the origin holds %d, want 7", total)
		}
	})
}

// A process that takes the place of another has links of its own, but the end of a fault restores the links that the
// fault has changed.
func TestAFaultMendsTheLinksThatItBeganWith(t *testing.T) {
	first, second := testLink(Profile{}), testLink(Profile{})
	now := []*Link{first}
	begin, end := Fault(func() []*Link { return now }, Cut)
	if begin(); !first.Cut {
		t.Error("the link is not cut")
	}
	now = []*Link{second}
	if end(); first.Cut {
		t.Error("the link stays cut")
	}
	begin, end = Fault(func() []*Link { return now }, Down)
	if begin(); !second.Down || second.Cut {
		t.Errorf("down: %t, cut: %t", second.Down, second.Cut)
	}
	if end(); second.Down {
		t.Error("the link stays down")
	}
}
