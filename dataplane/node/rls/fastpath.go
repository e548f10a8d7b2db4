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

// Calls as nearly all proxies make them are read and answered by hand: some descriptors
// of entries, and hits for all of them. Everything else is left to protobuf: limits and
// hits that a descriptor has of its own, more descriptors or entries, unknown fields.
// Tests hold the two to the same.

const (
	fastpathDescriptorsMax = 32
	fastpathEntriesMax     = 128
)

// work is what one call works on, kept for the next one.
type work struct {
	items     []item
	names     []byte // identifiers of all items
	strict    []dataplane.Request
	decisions []dataplane.Decision

	// The call, where it is read by hand. Each pointer is to the value of its place.
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

// put forgets the call, and keeps the space unless a long one made it large.
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

// Answer is ShouldRateLimit for messages as they are on the wire. ok is false for those
// that it leaves to protobuf, and nothing is decided then.
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
			w.call.HitsAddend = uint32(hits) // as protobuf does
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

// bytesOf reads a string that may hold any bytes, because a limited caller chooses it.
func bytesOf(m *wire.Message) (string, bool) {
	inner, ok := m.Message()
	return string(inner), ok
}

// statusBytesMax is what a status takes at most, without its limit.
const statusBytesMax = 48

// appendAnswer writes what protobuf would write of answer.
func (s *Service) appendAnswer(b []byte, items []item, denied bool, now time.Time) []byte {
	n := 2
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
	return b
}

// appendStatus writes what protobuf would write of status.
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

// appendMessage writes a message as a field: of those that may be written.
func appendMessage(b []byte, tag uint64, m proto.Message) []byte {
	b = append(b, byte(tag), 0)
	start := len(b)
	// fails for strings that are no text; a rule has none
	b, _ = proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, m)
	return wire.WithLength(b, start)
}
