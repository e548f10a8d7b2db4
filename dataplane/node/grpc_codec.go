package node

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/dataplane/node/wire"
	"github.com/weirhq/weir/shared/bounded"
)

// grpcCodec leaves the messages of unary calls as they arrived, for handlers that read them
// by hand, and sends answers that were written by hand. It leaves all other messages to protobuf.
type grpcCodec struct{ encoding.CodecV2 }

// arrived is a message, until it is freed, and the memory that its call holds.
type arrived struct {
	rpc
	buffer mem.Buffer
}

func newGRPCCodec() grpcCodec { return grpcCodec{encoding.GetCodecV2("proto")} }

func (c grpcCodec) Unmarshal(data mem.BufferSlice, message any) error {
	if a, ok := message.(*arrived); ok {
		a.buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
		return nil
	}
	return c.CodecV2.Unmarshal(data, message)
}

func (c grpcCodec) Marshal(message any) (mem.BufferSlice, error) {
	if written, ok := message.(mem.BufferSlice); ok {
		return written, nil
	}
	return c.CodecV2.Marshal(message)
}

// read decodes the message. Text that limited callers choose may hold any bytes.
func (a *arrived) read(message any) error {
	return wire.Unmarshal(a.buffer.ReadOnlyData(), message.(proto.Message))
}

// alone calls work with the message. For a long message it first takes a bounded.Place, which bounds the number of long
// messages in work.
func (a *arrived) alone(work func(data []byte) error) error {
	var place bounded.Place
	if err := place.For(a.ctx, a.len()); err != nil {
		return err
	}
	defer place.Give()
	return work(a.buffer.ReadOnlyData())
}

func (a *arrived) len() int { return a.buffer.Len() }

func (a *arrived) free() {
	if a.buffer != nil {
		a.buffer.Free()
	}
}

// room returns an empty buffer with room for n bytes. written gives it back once they are sent.
func room(n int) *[]byte {
	if mem.IsBelowBufferPoolingThreshold(n) {
		b := make([]byte, 0, n)
		return &b
	}
	b := mem.DefaultBufferPool().Get(n)
	*b = (*b)[:0]
	return b
}

// written moves a short answer from a long buffer to a short one, because the answer keeps its buffer until its caller
// takes it.
func written(b *[]byte) mem.BufferSlice {
	if len(*b) < answerBytesMin && cap(*b) > 2*answerBytesMin {
		fit := room(len(*b))
		*fit = append(*fit, *b...)
		mem.DefaultBufferPool().Put(b)
		b = fit
	}
	return mem.BufferSlice{mem.NewBuffer(b, mem.DefaultBufferPool())}
}
