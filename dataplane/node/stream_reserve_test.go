package node

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/bounded"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

type limitStream = connect.BidiStreamForClient[weirv1.LimitStreamRequest, weirv1.LimitStreamResponse]

func send(t *testing.T, stream *limitStream, messages ...*weirv1.LimitStreamRequest) {
	t.Helper()
	for _, m := range messages {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
}

func receive(t *testing.T, stream *limitStream) *weirv1.LimitStreamResponse {
	t.Helper()
	answer, err := stream.Receive()
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

func shut(stream *limitStream) {
	_ = stream.CloseRequest()
	_ = stream.CloseResponse()
}

func streamReserve(number uint64, m *weirv1.ReserveRequest) *weirv1.LimitStreamRequest {
	return &weirv1.LimitStreamRequest{Number: number, Reservation: &weirv1.LimitStreamRequest_Reserve{Reserve: m}}
}

func streamSettle(number uint64, m *weirv1.SettleRequest) *weirv1.LimitStreamRequest {
	return &weirv1.LimitStreamRequest{Number: number, Reservation: &weirv1.LimitStreamRequest_Settle{Settle: m}}
}

func oneOf(identifier string) []*weirv1.LimitRequest {
	return []*weirv1.LimitRequest{keyOf(identifier, 60)}
}

// A stream reserves, settles, extends and cancels as calls do, each under its number.
func TestReservationsOnAStream(t *testing.T) {
	nodes := regionOf(t, memstore.NewOrigin(memstore.OriginOptions{}), 1)
	for _, door := range streamDoors() {
		t.Run(door.name, func(t *testing.T) {
			stream := door.open(t, nodes[0]).LimitStream(t.Context())
			ask := func(m *weirv1.LimitStreamRequest) *weirv1.LimitStreamResponse {
				t.Helper()
				send(t, stream, m)
				answer := receive(t, stream)
				if answer.GetNumber() != m.GetNumber() {
					t.Errorf("%v is answered by %v", m, answer)
				}
				return answer
			}
			id := "stream of " + door.name
			reserved := ask(streamReserve(1, &weirv1.ReserveRequest{Id: id, Requests: oneOf(door.name), Returned: true})).GetReserved()
			if !reserved.GetAllowed() || reserved.GetId() != id || reserved.GetResponses()[0].GetRemaining() != 40 {
				t.Errorf("%v", reserved)
			}
			denied := ask(streamReserve(2, &weirv1.ReserveRequest{Requests: oneOf(door.name)})).GetReserved()
			if denied.GetAllowed() || len(denied.GetResponses()) != 1 {
				t.Errorf("%v", denied)
			}
			extended := ask(&weirv1.LimitStreamRequest{Number: 3, Reservation: &weirv1.LimitStreamRequest_Extend{
				Extend: &weirv1.ExtendRequest{Id: id, TtlMs: 3_600_000}}}).GetSettlement()
			if extended.GetEndsAtMs() < reserved.GetEndsAtMs()+3_000_000 {
				t.Errorf("%v", extended)
			}
			if s := ask(streamSettle(4, &weirv1.SettleRequest{Id: id, Costs: []int64{20}, More: true})).GetSettlement(); s.GetSettled() ||
				!slices.Equal(s.GetSpent(), []int64{20}) {
				t.Errorf("%v", s)
			}
			cancelled := ask(&weirv1.LimitStreamRequest{Number: 5, Reservation: &weirv1.LimitStreamRequest_Cancel{
				Cancel: &weirv1.CancelRequest{Id: id}}}).GetSettlement()
			if !cancelled.GetSettled() || cancelled.GetLate() || !slices.Equal(cancelled.GetSpent(), []int64{20}) {
				t.Errorf("%v", cancelled)
			}
			if d := ask(&weirv1.LimitStreamRequest{Number: 6, Request: keyOf("a request of "+door.name, 1)}).GetResponse(); !d.GetAllowed() {
				t.Errorf("%v", d)
			}
			streamProblems(t, ask, id, door.name)
			shut(stream)
		})
	}
}

// An invalid call gets the same error as outside of a stream, and does not affect other calls.
func streamProblems(t *testing.T, ask func(*weirv1.LimitStreamRequest) *weirv1.LimitStreamResponse, id, key string) {
	for what, c := range map[string]struct {
		m           *weirv1.LimitStreamRequest
		code, words string
	}{
		"none":     {streamSettle(10, &weirv1.SettleRequest{Id: "nobody's", Costs: []int64{1}}), "not_found", "no reservation"},
		"other":    {streamReserve(11, &weirv1.ReserveRequest{Id: id, Requests: oneOf(key + "2")}), "already_exists", "another reservation"},
		"costs":    {streamSettle(12, &weirv1.SettleRequest{Id: id}), "", "has 0 items (1 to 32)"},
		"id":       {streamSettle(13, &weirv1.SettleRequest{Costs: []int64{1}}), "", "is empty (1 to 124 bytes)"},
		"nothing":  {streamReserve(14, &weirv1.ReserveRequest{}), "", "has 0 items (1 to 32)"},
		"ttl":      {streamReserve(15, &weirv1.ReserveRequest{Requests: oneOf(key), TtlMs: 5}), "", "is 5 (1000 to 86400000, or 0)"},
		"both":     {&weirv1.LimitStreamRequest{Number: 16, Request: keyOf(key, 1), Reservation: streamSettle(0, nil).GetReservation()}, "", "is set together"},
		"no costs": {streamSettle(17, nil), "", "is empty"},
	} {
		answer := ask(c.m)
		words := answer.GetProblem().GetMessage()
		for _, v := range answer.GetViolations() {
			words += v.GetField() + " " + v.GetDescription() + "; "
		}
		if answer.GetProblem().GetCode() != c.code || !strings.Contains(words, c.words) {
			t.Errorf("%s: %v", what, answer)
		}
	}
}

// slow returns a limiter whose origin does not answer reservations until the test allows it.
func slow(t *testing.T, adjust ...func(*Config)) (h *harness, underWay *atomic.Int64, answers func()) {
	goOn := make(chan struct{})
	underWay = new(atomic.Int64)
	h = start(t, scripted{
		allow: func(_ context.Context, r dataplane.Request) dataplane.Decision {
			return dataplane.Decision{Allowed: true, Limit: r.Limit}
		},
		reserve: func(ctx context.Context, r dataplane.ReserveRequest) dataplane.Reserved {
			underWay.Add(1)
			defer underWay.Add(-1)
			select {
			case <-goOn:
				return dataplane.Reserved{ID: r.ID, Allowed: true}
			case <-ctx.Done():
				return dataplane.Reserved{Err: ctx.Err()}
			}
		},
	}, adjust...)
	return h, underWay, func() { close(goOn) }
}

// "Calls about reservations are made concurrently with the requests": a slow origin delays no requests, and requests
// are processed in order. A call above the bound of a stream is rejected immediately.
func TestASlowOriginHoldsNoStreamUp(t *testing.T) {
	for _, door := range streamDoors() {
		t.Run(door.name, func(t *testing.T) {
			h, underWay, answers := slow(t)
			stream := door.open(t, h).LimitStream(t.Context())
			defer shut(stream)
			for i := range uint64(asideMax) {
				send(t, stream, streamReserve(100+i, &weirv1.ReserveRequest{Id: "slow", Requests: oneOf("k")}))
			}
			for i := range 50 {
				send(t, stream, &weirv1.LimitStreamRequest{Request: numbered(i)})
			}
			for i := range int64(50) {
				if answer := receive(t, stream); answer.GetResponse().GetLimit() != i || answer.GetNumber() != 0 {
					t.Fatalf("answer %d is %v", i, answer)
				}
			}
			send(t, stream, streamReserve(7, &weirv1.ReserveRequest{Id: "one more", Requests: oneOf("k")}))
			if answer := receive(t, stream); answer.GetNumber() != 7 || answer.GetProblem().GetCode() != "unavailable" {
				t.Errorf("one more than there may be: %v", answer)
			}
			if n := value(h.bounds.refused[bounded.BoundSlots]); n != 1 {
				t.Errorf("%v refusals are counted", n)
			}
			await.True(t, "all are under way", func() bool { return underWay.Load() == asideMax })
			if err := stream.CloseRequest(); err != nil {
				t.Fatal(err)
			}
			answers()
			seen := make(map[uint64]bool)
			for range asideMax {
				answer := receive(t, stream)
				seen[answer.GetNumber()] = answer.GetReserved().GetAllowed()
			}
			if _, err := stream.Receive(); !errors.Is(err, io.EOF) || len(seen) != asideMax || !seen[100] || !seen[100+asideMax-1] {
				t.Errorf("%v are answered, then %v", seen, err)
			}
		})
	}
}

// Calls of streams hold slots, as others do. Without a slot a call is not made.
func TestCallsOfAStreamHoldSlots(t *testing.T) {
	h, underWay, answers := slow(t, func(c *Config) { c.MaxInFlight = 4 })
	stream := streamDoors()[0].open(t, h).LimitStream(t.Context())
	defer shut(stream)
	for i := range uint64(5) {
		send(t, stream, streamReserve(i, &weirv1.ReserveRequest{Id: "slow", Requests: oneOf("k")}))
	}
	for range 2 { // a caller has three quarters of them
		if answer := receive(t, stream); answer.GetNumber() < 3 || answer.GetProblem().GetCode() != "unavailable" {
			t.Errorf("%v", answer)
		}
	}
	await.True(t, "three are under way", func() bool { return underWay.Load() == 3 })
	send(t, stream, &weirv1.LimitStreamRequest{Request: numbered(9)})
	if answer := receive(t, stream); answer.GetResponse().GetLimit() != 9 {
		t.Errorf("%v", answer)
	}
	answers()
	for range 3 {
		receive(t, stream)
	}
}

// A caller that goes away leaves no goroutine behind (the harness waits for them at the end, and TestMain looks), and
// its calls' slots are free again.
func TestACancelledStreamLeavesNothingBehind(t *testing.T) {
	for _, door := range streamDoors() {
		t.Run(door.name, func(t *testing.T) {
			h, underWay, _ := slow(t)
			ctx, cancel := context.WithCancel(t.Context())
			stream := door.open(t, h).LimitStream(ctx)
			for i := range uint64(10) {
				send(t, stream, streamReserve(i, &weirv1.ReserveRequest{Id: "slow", Requests: oneOf("k")}))
			}
			await.True(t, "all are under way", func() bool { return underWay.Load() == 10 })
			cancel()
			await.True(t, "none is left", func() bool { return underWay.Load() == 0 })
			shut(stream)
			h.gate.readers.Wait()
			within, end := context.WithTimeout(t.Context(), 10*time.Second)
			defer end()
			if err := h.gate.idle(within); err != nil {
				t.Error(err)
			}
		})
	}
}

// A node that stops lets out the answers that are about to come.
func TestDrainAnswersCallsOfStreams(t *testing.T) {
	for _, door := range streamDoors() {
		t.Run(door.name, func(t *testing.T) {
			h, underWay, answers := slow(t)
			stream := door.open(t, h).LimitStream(t.Context())
			send(t, stream, streamReserve(1, &weirv1.ReserveRequest{Id: "slow", Requests: oneOf("k")}))
			await.True(t, "it is under way", func() bool { return underWay.Load() == 1 })
			drained := make(chan error)
			go func() { drained <- h.Drain() }()
			<-h.gate.ending
			answers()
			if answer := receive(t, stream); answer.GetNumber() != 1 || !answer.GetReserved().GetAllowed() {
				t.Errorf("%v", answer)
			}
			if _, err := stream.Receive(); connect.CodeOf(err) != connect.CodeUnavailable {
				t.Errorf("the end: %v", err)
			}
			shut(stream)
			if err := <-drained; err != nil {
				t.Error(err)
			}
		})
	}
}

// A message that holds more than its bound is not decoded, and ends the stream.
func TestMessagesOfStreamsAreBounded(t *testing.T) {
	long := func(n int) *weirv1.LimitStreamRequest {
		return streamSettle(1, &weirv1.SettleRequest{Id: strings.Repeat("x", n), Costs: []int64{1}})
	}
	most := keyOf(strings.Repeat("i", 255), 1)
	most.Namespace, most.Workspace = strings.Repeat("n", 255), strings.Repeat("w", 191)
	for _, door := range streamDoors() {
		t.Run(door.name, func(t *testing.T) {
			h := start(t, scripted{})
			for want, m := range map[string]*weirv1.LimitStreamRequest{
				"has 33 items (1 to 32)": streamReserve(1, &weirv1.ReserveRequest{Requests: make([]*weirv1.LimitRequest, 33)}),
				"16384":                  long(bodyBytesMax),
				"40960":                  long(reserveBytesMax),
			} {
				stream := door.open(t, h).LimitStream(t.Context())
				_ = stream.Send(m)
				_, err := stream.Receive()
				if code := connect.CodeOf(err); code != connect.CodeInvalidArgument && code != connect.CodeResourceExhausted ||
					!strings.Contains(err.Error(), want) {
					t.Errorf("%s: %v", want, err)
				}
				shut(stream)
			}
			if items, body := value(h.bounds.refused[bounded.BoundItems]), value(h.bounds.refused[bounded.BoundBody]); items != 1 || body < 1 {
				t.Errorf("%v and %v refusals are counted", items, body)
			}
			stream := door.open(t, h).LimitStream(t.Context())
			send(t, stream, streamReserve(2, &weirv1.ReserveRequest{Id: strings.Repeat("x", 124), Holder: strings.Repeat("h", 64),
				Requests: slices.Repeat([]*weirv1.LimitRequest{most}, 32)}))
			if answer := receive(t, stream); answer.GetNumber() != 2 || answer.GetReserved() == nil {
				t.Errorf("the longest: %v", answer)
			}
			shut(stream)
		})
	}
}

// A panic in a call of a stream ends that stream, as internal.
func TestPanicInACallOfAStream(t *testing.T) {
	h := start(t, scripted{reserve: func(context.Context, dataplane.ReserveRequest) dataplane.Reserved { panic("secret") }})
	for _, door := range streamDoors() {
		stream := door.open(t, h).LimitStream(t.Context())
		send(t, stream, streamReserve(1, &weirv1.ReserveRequest{Id: "x", Requests: oneOf("k")}))
		if _, err := stream.Receive(); connect.CodeOf(err) != connect.CodeInternal {
			t.Errorf("%s: %v, want internal", door.name, err)
		}
		shut(stream)
	}
}
