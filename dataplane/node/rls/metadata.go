package rls

import (
	"encoding/binary"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirhq/weir/dataplane/node/wire"
)

// Envoy keeps dynamic_metadata with the request, for its access log and its other filters. Logs are kept, so the
// metadata must not have a value that callers choose, for example an identifier.

// metadataBytesMax bounds the bytes of dynamic_metadata without the policy's name.
const metadataBytesMax = 128

// metadataOf returns the limit that dynamic_metadata shows: the limit that headers show, or, if the call passes over a
// limit because of a shadow mode, that limit. ok is false if the response has no metadata.
func (s *Service) metadataOf(items []item, denied bool, now time.Time) (worst standing, ok bool) {
	if !s.Metadata {
		return worst, false
	}
	if !denied {
		if worst, ok = standingOf(items, denied, now, (*item).shadowed); ok {
			return worst, true
		}
	}
	return standingOf(items, denied, now, (*item).enforced)
}

// shadowed reports whether the item is over its limit and passes only because of a shadow mode: of its rule, its
// override or its namespace.
func (i *item) shadowed() bool { return i.decision.Shadowed && !i.refund && !i.charges() }

// metadata returns nil if the response has none.
func (s *Service) metadata(items []item, denied bool, now time.Time) *structpb.Struct {
	worst, ok := s.metadataOf(items, denied, now)
	if !ok {
		return nil
	}
	fields := map[string]*structpb.Value{
		"limit":     structpb.NewNumberValue(float64(worst.decision.Limit)),
		"policy":    structpb.NewStringValue(worst.policy),
		"remaining": structpb.NewNumberValue(float64(worst.decision.Remaining)),
		"shadowed":  structpb.NewBoolValue(worst.shadowed()),
	}
	if worst.seconds >= 0 {
		fields["reset_seconds"] = structpb.NewNumberValue(float64(worst.seconds))
	}
	return &structpb.Struct{Fields: fields}
}

// appendMetadata writes the same bytes as protobuf would write for metadata, with its keys in order.
func appendMetadata(b []byte, worst *standing) []byte {
	b = append(b, byte(wire.Tag(6, wire.Bytes)), 0)
	start := len(b)
	b = appendNumber(b, "limit", worst.decision.Limit)
	b = appendString(b, "policy", worst.policy)
	b = appendNumber(b, "remaining", worst.decision.Remaining)
	if worst.seconds >= 0 {
		b = appendNumber(b, "reset_seconds", worst.seconds)
	}
	b = appendBool(b, "shadowed", worst.shadowed())
	return wire.WithLength(b, start)
}

// appendKey begins a Struct's field whose Value has the given length, below 100 bytes.
func appendKey(b []byte, key string, length int) []byte {
	b = append(b, byte(wire.Tag(1, wire.Bytes)), byte(4+len(key)+length), byte(wire.Tag(1, wire.Bytes)), byte(len(key)))
	return append(append(b, key...), byte(wire.Tag(2, wire.Bytes)), byte(length))
}

func appendNumber(b []byte, key string, n int64) []byte {
	b = append(appendKey(b, key, 9), byte(protowire.EncodeTag(2, protowire.Fixed64Type)))
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(n)))
}

func appendBool(b []byte, key string, yes bool) []byte {
	b = append(appendKey(b, key, 2), byte(wire.Tag(4, wire.Varint)))
	return protowire.AppendVarint(b, protowire.EncodeBool(yes))
}

// appendString writes a text of any length.
func appendString(b []byte, key, text string) []byte {
	b = append(b, byte(wire.Tag(1, wire.Bytes)), 0)
	field := len(b)
	b = append(append(b, byte(wire.Tag(1, wire.Bytes)), byte(len(key))), key...)
	b = append(b, byte(wire.Tag(2, wire.Bytes)), 0)
	value := len(b)
	b = protowire.AppendString(append(b, byte(wire.Tag(3, wire.Bytes))), text)
	return wire.WithLength(wire.WithLength(b, value), field)
}
