package rls

import (
	"context"
	"sync"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node/wire"
)

// Nearly all proxies send calls with some descriptors of entries, and hits for all of them. This file reads and writes
// such calls by hand. All other calls use protobuf: calls with limits or hits of a single descriptor, with more
// descriptors or entries, or with unknown fields. Tests check that both ways give the same results.

const (
	fastpathDescriptorsMax = 32
	fastpathEntriesMax     = 128
)

// work is the memory of a call, which the next call reuses.
type work struct {
	items     []item
	names     []byte // identifiers of all items
	strict    []dataplane.Request
	decisions []dataplane.Decision

	// The call, if it is read by hand. Each pointer points to the value at its index.
	call          rlsv3.RateLimitRequest
	descriptors   [fastpathDescriptorsMax]ratelimitv3.RateLimitDescriptor
	descriptorsAt [fastpathDescriptorsMax]*ratelimitv3.RateLimitDescriptor
	entries       [fastpathEntriesMax]ratelimitv3.RateLimitDescriptor_Entry
	entriesAt     [fastpathEntriesMax]*ratelimitv3.RateLimitDescriptor_Entry
	entriesUsed   int
}

var works = sync.Pool{New: func() any {
	w := new(work)
	for i := range w.descriptors {
		w.descriptorsAt[i] = &w.descriptors[i]
	}
	for i := range w.entries {
		w.entriesAt[i] = &w.entries[i]
	}
	return w
}}

// take makes room for n zero items.
func (w *work) take(n int) {
	if cap(w.items) < n {
		w.items = make([]item, n)
	}
	w.items = w.items[:n]
	w.names, w.strict, w.decisions = w.names[:0], w.strict[:0], w.decisions[:0]
}

// put clears the memory for the next call. Memory that a long call made large is not kept.
func (w *work) put() {
	if cap(w.items) > fastpathDescriptorsMax {
		return
	}
	clear(w.items)
	clear(w.strict)
	clear(w.decisions)
	for _, d := range w.call.Descriptors {
		d.Entries = nil
	}
	for _, e := range w.entriesAt[:w.entriesUsed] {
		e.Key, e.Value = "", ""
	}
	w.call.Domain, w.call.Descriptors, w.call.HitsAddend, w.entriesUsed = "", nil, 0, 0
	works.Put(w)
}

// Answer is ShouldRateLimit for an encoded message. If ok is false, the message must be decoded with protobuf, and
// nothing has been decided.
func (s *Service) Answer(ctx context.Context, message string) (answer []byte, ok bool, err error) {
	w, _ := works.Get().(*work)
	defer w.put()
	if !w.read(wire.Message(message)) {
		return nil, false, nil
	}
	denied, err := s.decideCall(ctx, &w.call, w)
	if err != nil {
		return nil, true, err
	}
	return s.appendAnswer(nil, w.items, denied, time.Now()), true, nil
}

func (w *work) read(m wire.Message) (ok bool) {
	n := 0
	defer func() { w.call.Descriptors = w.descriptorsAt[:n] }()
	for len(m) > 0 {
		tag, ok := m.Varint()
		if !ok {
			return false
		}
		switch tag {
		case wire.Tag(1, wire.Bytes):
			w.call.Domain, ok = m.Text()
		case wire.Tag(2, wire.Bytes):
			if n == fastpathDescriptorsMax {
				return false
			}
			var descriptor wire.Message
			if descriptor, ok = m.Message(); ok {
				ok = w.readDescriptor(descriptor, &w.descriptors[n])
				n++
			}
		case wire.Tag(3, wire.Varint):
			var hits uint64
			hits, ok = m.Varint()
			w.call.HitsAddend = uint32(hits) // as protobuf converts it
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	return true
}

func (w *work) readDescriptor(m wire.Message, d *ratelimitv3.RateLimitDescriptor) (ok bool) {
	from := w.entriesUsed
	for len(m) > 0 {
		tag, ok := m.Varint()
		if !ok || tag != wire.Tag(1, wire.Bytes) || w.entriesUsed == fastpathEntriesMax {
			return false
		}
		entry, ok := m.Message()
		if !ok {
			return false
		}
		w.entriesUsed++
		if !readEntry(entry, w.entriesAt[w.entriesUsed-1]) {
			return false
		}
	}
	d.Entries = w.entriesAt[from:w.entriesUsed:w.entriesUsed]
	return true
}

func readEntry(m wire.Message, e *ratelimitv3.RateLimitDescriptor_Entry) (ok bool) {
	for len(m) > 0 {
		tag, ok := m.Varint()
		if !ok {
			return false
		}
		switch tag {
		case wire.Tag(1, wire.Bytes):
			e.Key, ok = bytesOf(&m)
		case wire.Tag(2, wire.Bytes):
			e.Value, ok = bytesOf(&m)
		default:
			return false
		}
		if !ok {
			return false
		}
	}
	return true
}

// bytesOf reads a string that can hold any bytes, because a limited caller chooses it.
func bytesOf(m *wire.Message) (string, bool) {
	inner, ok := m.Message()
	return string(inner), ok
}

// statusBytesMax bounds the bytes of a status without its limit.
const statusBytesMax = 48

// appendAnswer writes the same bytes as protobuf would write for answer.
func (s *Service) appendAnswer(b []byte, items []item, denied bool, now time.Time) []byte {
	n := 2
	worst, hasMetadata := s.metadataOf(items, denied, now)
	if hasMetadata {
		n += metadataBytesMax + len(worst.policy)
	}
	for i := range items {
		n += statusBytesMax
		if items[i].limit != nil {
			n += len(items[i].limit.written)
		}
	}
	if b == nil {
		b = make([]byte, 0, n)
	}
	b = append(b, byte(wire.Tag(1, wire.Varint)), byte(overall(denied)))
	for i := range items {
		b = append(b, byte(wire.Tag(2, wire.Bytes)), 0)
		start := len(b)
		b = wire.WithLength(items[i].appendStatus(b, now), start)
	}
	for _, h := range s.headersOf(items, denied, now) {
		b = appendMessage(b, wire.Tag(3, wire.Bytes), h)
	}
	if hasMetadata {
		b = appendMetadata(b, &worst)
	}
	return b
}

// appendStatus writes the same bytes as protobuf would write for status.
func (i *item) appendStatus(b []byte, now time.Time) []byte {
	code, remaining := i.outline()
	b = append(b, byte(wire.Tag(1, wire.Varint)), byte(code))
	switch {
	case !i.limited():
	case i.isOverridden():
		b = appendMessage(b, wire.Tag(2, wire.Bytes), i.overridden())
	default:
		b = append(b, i.limit.written...)
	}
	if remaining > 0 {
		b = protowire.AppendVarint(append(b, byte(wire.Tag(3, wire.Varint))), uint64(remaining))
	}
	if !i.limited() {
		return b
	}
	until := i.untilReset(now)
	b = append(b, byte(wire.Tag(4, wire.Bytes)), 0)
	start := len(b)
	if seconds := until / time.Second; seconds > 0 {
		b = protowire.AppendVarint(append(b, byte(wire.Tag(1, wire.Varint))), uint64(seconds))
	}
	if nanos := until % time.Second; nanos > 0 {
		b = protowire.AppendVarint(append(b, byte(wire.Tag(2, wire.Varint))), uint64(nanos))
	}
	return wire.WithLength(b, start)
}

// appendMessage writes a message as a field. Only the messages of this file are supported.
func appendMessage(b []byte, tag uint64, m proto.Message) []byte {
	b = append(b, byte(tag), 0)
	start := len(b)
	// fails for strings that are not UTF-8, which rules do not have
	b, _ = proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, m)
	return wire.WithLength(b, start)
}
