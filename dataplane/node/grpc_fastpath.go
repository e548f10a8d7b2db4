package node

import (
	"context"
	"math"
	"sync"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/wire"
	"github.com/weirhq/weir/shared/window"
)

// Valid calls of Limit and LimitMany by gRPC are read and written by hand, because protobuf takes longer
// for request and answer than the decision does. Everything else is left to protobuf, such as unknown
// fields and values out of their bounds. Tests compare both ways.

// fastpath answers a message, or leaves it to others before anything is decided.
type fastpath func(ctx context.Context, message string) (answer any, ok bool, err error)

func (s service) fastpathLimit(ctx context.Context, message string) (answer any, ok bool, err error) {
	var request dataplane.Request
	if !readFastpathLimit(wire.Message(message), &request) {
		return nil, false, nil
	}
	decision := s.limiter(ctx).Allow(ctx, request)
	if decision.Err != nil {
		return nil, false, nil //nolint:nilerr // nothing was counted, nothing will be, and service.limit returns the reason
	}
	if !utf8.ValidString(decision.Override) {
		return writeDecision(decision), true, nil
	}
	b := room(decisionBytesMax + len(decision.Override))
	*b = appendDecision(*b, &decision)
	return written(b), true, nil
}

// fastBatch is the memory of a batch, which the next batch reuses.
type fastBatch struct {
	requests  []dataplane.Request
	decisions []dataplane.Decision
}

var fastBatches = sync.Pool{New: func() any { return new(fastBatch) }}

// keptMax is the most items for which a fastBatch that is kept has space.
const keptMax = 256

func (m *fastBatch) put() {
	if cap(m.requests) > keptMax || cap(m.decisions) > keptMax {
		return
	}
	clear(m.requests)
	clear(m.decisions)
	fastBatches.Put(m)
}

func (s service) fastpathBatch(ctx context.Context, message string) (answer any, ok bool, err error) {
	m, _ := fastBatches.Get().(*fastBatch)
	defer m.put()
	if !m.read(wire.Message(message)) {
		return nil, false, nil
	}
	batch := s.limiter(ctx).AppendAllowMany(ctx, m.decisions[:0], m.requests)
	if batch.Err != nil {
		return nil, false, nil
	}
	m.decisions = batch.Decisions
	n := 2
	for i := range batch.Decisions {
		override := batch.Decisions[i].Override
		if !utf8.ValidString(override) {
			return writeBatch(batch), true, nil
		}
		n += responseBytesMax + len(override)
	}
	b := room(n)
	*b = appendBatch(*b, &batch)
	return written(b), true, nil
}

func (m *fastBatch) read(batch wire.Message) (ok bool) {
	m.requests = m.requests[:0]
	for len(batch) > 0 {
		tag, ok := batch.Varint()
		if !ok || tag != wire.Tag(1, wire.Bytes) || len(m.requests) == dataplane.BatchMax {
			return false
		}
		one, ok := batch.Message()
		m.requests = append(m.requests, dataplane.Request{})
		if !ok || !readFastpathLimit(one, &m.requests[len(m.requests)-1]) {
			return false
		}
	}
	return len(m.requests) > 0
}

// readFastpathLimit reads a LimitRequest of known fields within their bounds. The request must be zero.
func readFastpathLimit(m wire.Message, r *dataplane.Request) (ok bool) {
	var durationMs uint64
	for len(m) > 0 {
		tag, ok := m.Varint()
		if !ok {
			return false
		}
		var number uint64
		switch tag {
		case wire.Tag(1, wire.Bytes):
			r.Workspace, ok = m.Text()
		case wire.Tag(2, wire.Bytes):
			r.Namespace, ok = m.Text()
		case wire.Tag(3, wire.Bytes):
			r.Identifier, ok = m.Text()
		case wire.Tag(4, wire.Varint):
			number, ok = m.Varint()
			r.Limit = int64(number)
		case wire.Tag(5, wire.Varint):
			durationMs, ok = m.Varint()
		case wire.Tag(6, wire.Varint):
			number, ok = m.Varint()
			r.Cost = int64(number)
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	return complete(r, durationMs)
}

// complete sets a request's duration, and reports whether the request is within the service's bounds.
func complete(r *dataplane.Request, durationMs uint64) bool {
	if durationMs < uint64(durationMsMin) || durationMs > uint64(durationMsMax) {
		return false // before it could overflow
	}
	r.Duration = time.Duration(durationMs) * time.Millisecond
	return within(r.Workspace, window.WorkspaceBytesMax) && within(r.Namespace, window.NamespaceBytesMax) &&
		within(r.Identifier, window.IdentifierBytesMax) &&
		uint64(r.Limit) <= window.LimitMax && uint64(r.Cost) <= window.LimitMax
}

func within(name string, bytesMax int) bool { return len(name) > 0 && len(name) <= bytesMax }

// Bounds of the bytes of a LimitResponse without its override, and of the same as a part of another message, with its
// tag and length.
const (
	decisionBytesMax = 8*11 + 9 + 3 + 2
	responseBytesMax = 1 + 3 + decisionBytesMax
)

func appendBatch(b []byte, batch *dataplane.Batch) []byte {
	b = appendBool(b, 1, batch.Allowed)
	for i := range batch.Decisions {
		b = append(b, byte(wire.Tag(2, wire.Bytes)), 0)
		start := len(b)
		b = appendDecision(b, &batch.Decisions[i])
		b = wire.WithLength(b, start)
	}
	return b
}

// appendDecision writes the same bytes as protobuf would write for writeDecision.
func appendDecision(b []byte, d *dataplane.Decision) []byte {
	b = appendBool(b, 1, d.Allowed)
	b = appendNumber(b, 2, d.Limit)
	b = appendNumber(b, 3, d.Remaining)
	b = appendNumber(b, 4, d.ResetAt.UnixMilli())
	b = appendNumber(b, 5, retryAfterMs(*d))
	if bits := math.Float64bits(d.Current); bits != 0 {
		b = protowire.AppendFixed64(protowire.AppendTag(b, 6, protowire.Fixed64Type), bits)
	}
	b = appendNumber(b, 7, int64(writeSource(d.Source)))
	b = appendBool(b, 8, d.Shadowed)
	if d.Override != "" {
		b = protowire.AppendString(protowire.AppendTag(b, 9, protowire.BytesType), d.Override)
	}
	b = appendBool(b, 10, d.CandidateDenied)
	b = appendNumber(b, 11, d.Duration.Milliseconds())
	return appendBool(b, 12, d.NeverPasses)
}

func appendNumber(b []byte, field byte, n int64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(append(b, field<<3|wire.Varint), uint64(n))
}

func appendBool(b []byte, field byte, yes bool) []byte {
	if !yes {
		return b
	}
	return append(b, field<<3|wire.Varint, 1)
}
