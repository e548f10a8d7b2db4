package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane/node/wire"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// jsonCodec is the JSON of the API, for people and for programs without generated code.
//
// It writes every field, also those that are false, zero or empty, under its name in the .proto
// file and without white space. So every build writes the same bytes for the same decision. 64-bit
// integers are strings, as in protobuf's JSON.
//
// It reads names in snake_case and lowerCamelCase, and integers as numbers or strings. An unknown
// field is an error, because it is nearly always misspelt: if "limt" were ignored, the limit would
// be 0 and every request denied. An identifier may hold any bytes: see wire.UnmarshalJSON.
type jsonCodec struct{ name string }

// codecs replaces connect's codecs under all of their names. All messages of the service are protobuf messages.
func codecs() connect.HandlerOption {
	return connect.WithHandlerOptions(
		connect.WithCodec(jsonCodec{"json"}),
		connect.WithCodec(jsonCodec{"json; charset=utf-8"}),
		connect.WithCodec(protoCodec{}),
	)
}

var jsonWriter = protojson.MarshalOptions{EmitUnpopulated: true, UseProtoNames: true}

func (c jsonCodec) Name() string { return c.name }

func (c jsonCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend appends message to dst. Connect finds it by its signature, and
// then writes into buffers of its own.
func (c jsonCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	written, err := jsonWriter.MarshalAppend(dst, message.(proto.Message))
	if err != nil {
		return nil, fmt.Errorf("write %T as JSON: %w", message, err)
	}
	// protojson spaces its output differently from build to build, on purpose.
	compact := bytes.NewBuffer(written[:len(dst)])
	if err := json.Compact(compact, written[len(dst):]); err != nil {
		return nil, fmt.Errorf("write %T as JSON: %w", message, err)
	}
	return compact.Bytes(), nil
}

func (c jsonCodec) Unmarshal(data []byte, message any) error {
	if len(data) == 0 {
		return errors.New("the body is empty, want a JSON object")
	}
	if _, ok := message.(*weirv1.LimitStreamRequest); ok {
		if err := checkStreamed("json", data); err != nil {
			return err
		}
	}
	m := message.(proto.Message)
	if err := wire.UnmarshalJSON(data, m); err != nil {
		return errors.New(withFields(plain(err), m.ProtoReflect().Descriptor()))
	}
	return nil
}

// protoCodec is connect's codec for protobuf's binary form. It checks messages of streams before it decodes them.
// Messages of calls are checked before connect gets them.
type protoCodec struct{}

func (protoCodec) Name() string { return "proto" }

func (c protoCodec) Marshal(message any) ([]byte, error) { return c.MarshalAppend(nil, message) }

// MarshalAppend is like jsonCodec.MarshalAppend.
func (protoCodec) MarshalAppend(dst []byte, message any) ([]byte, error) {
	return proto.MarshalOptions{}.MarshalAppend(dst, message.(proto.Message))
}

func (protoCodec) Unmarshal(data []byte, message any) error {
	if _, ok := message.(*weirv1.LimitStreamRequest); ok {
		if err := checkStreamed("proto", data); err != nil {
			return err
		}
	}
	return wire.Unmarshal(data, message.(proto.Message))
}

// plainBytesMax bounds how much of a body its error quotes.
const plainBytesMax = 1 << 10

// plain is protobuf's own error without its prefix, whose white space differs
// from build to build.
func plain(err error) string {
	text := strings.TrimLeft(strings.TrimPrefix(err.Error(), "proto:"), " \u00a0")
	if len(text) <= plainBytesMax {
		return text
	}
	return strings.ToValidUTF8(text[:plainBytesMax], "") + "…"
}
