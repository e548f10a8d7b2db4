package main

import (
	"context"
	"errors"
	"fmt"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The load takes its CPU from the server that it measures, so it does as little as it can, and the same for every gRPC
// server: a request is encoded once, before the first call, and an answer is read as bytes, for its verdicts alone.

// verdict reports whether an answer lets its call pass: all of it, if it has many parts.
type verdict func(answer []byte) (allowed bool, err error)

// invoke returns a call that sends the same request each time.
func invoke(conn *grpc.ClientConn, method string, request []byte, read verdict) call {
	return func(ctx context.Context) error {
		a := answer{read: read}
		if err := conn.Invoke(ctx, method, &request, &a, grpc.ForceCodecV2(asIs{})); err != nil {
			return err
		}
		return allowed(a.allowed, a.err)
	}
}

// encoded returns a request in its form on the wire. The requests here can be encoded.
func encoded(message proto.Message) []byte {
	written, err := proto.Marshal(message)
	fail(err)
	return written
}

// answer is the message into which asIs reads an answer.
type answer struct {
	read    verdict
	allowed bool
	err     error
}

// asIs is a codec whose requests are bytes, and whose answers are read where they arrived.
type asIs struct{}

func (asIs) Name() string { return "proto" }

func (asIs) Marshal(message any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*message.(*[]byte))}, nil
}

func (asIs) Unmarshal(data mem.BufferSlice, message any) error {
	buffer := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buffer.Free()
	a := message.(*answer)
	a.allowed, a.err = a.read(buffer.ReadOnlyData())
	return nil
}

// limitAllowed reads a LimitResponse.
func limitAllowed(answer []byte) (bool, error) {
	allowed := false
	err := eachField(answer, func(field protowire.Number, _ []byte, number uint64) error {
		allowed = allowed || field == 1 && number == 1
		return nil
	})
	return allowed, err
}

// allAllowed reads a LimitManyResponse of n responses.
func allAllowed(n int) verdict { return whole(1, n) }

// withinLimits reads Envoy's RateLimitResponse of n statuses.
func withinLimits(n int) verdict { return whole(uint64(rlsv3.RateLimitResponse_OK), n) }

// whole reads an answer whose first field is the verdict on all, and whose second field has n parts with their own
// verdict in their first field.
func whole(pass uint64, n int) verdict {
	return func(answer []byte) (bool, error) {
		all, passed := false, 0
		err := eachField(answer, func(field protowire.Number, part []byte, number uint64) error {
			switch field {
			case 1:
				all = number == pass
			case 2:
				return eachField(part, func(field protowire.Number, _ []byte, number uint64) error {
					if field == 1 && number == pass {
						passed++
					}
					return nil
				})
			}
			return nil
		})
		return all && passed == n, err
	}
}

// streamAllowed reads a LimitStreamResponse.
func streamAllowed(answer []byte) (allowed bool, err error) {
	err = eachField(answer, func(field protowire.Number, response []byte, _ uint64) error {
		if field == 1 {
			allowed, err = limitAllowed(response)
		}
		return err
	})
	return allowed, err
}

var errBadMessage = errors.New("not a message of protobuf")

// eachField calls f with each field of a message: a number, or the content of a string or a message.
func eachField(message []byte, f func(field protowire.Number, value []byte, number uint64) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("%w: %w", errBadMessage, protowire.ParseError(n))
		}
		message = message[n:]
		var value []byte
		var number uint64
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(field, kind, message)
		}
		if n < 0 {
			return fmt.Errorf("%w: %w", errBadMessage, protowire.ParseError(n))
		}
		if err := f(field, value, number); err != nil {
			return err
		}
		message = message[n:]
	}
	return nil
}
