package main

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

// gubernator's messages are written and read here by hand: the package that has them has its whole server too, with
// requirements that ours cannot be had with. What its client saves that way leaves its server the more CPU.

// getRateLimits asks for as many limits in each call.
func getRateLimits(limits int) func(context.Context, *server, int) (callers, error) {
	return func(_ context.Context, s *server, n int) (callers, error) {
		return dial(s.grpc, n, func(conn *grpc.ClientConn, i int) call {
			var message []byte
			for j := range limits {
				message = protowire.AppendTag(message, 1, protowire.BytesType)
				message = protowire.AppendBytes(message, rateLimitReq(fmt.Sprint("user_", limits*i+j)))
			}
			return func(ctx context.Context) error {
				var answer []byte
				if err := conn.Invoke(ctx, "/pb.gubernator.V1/GetRateLimits", &message, &answer, grpc.ForceCodec(asIs{})); err != nil {
					return err
				}
				under, err := underLimit(answer)
				return allowed(under == limits, err)
			}
		})
	}
}

// rateLimitReq is a RateLimitReq: a cost of 1 against a token bucket that nobody empties.
func rateLimitReq(key string) (m []byte) {
	const name, uniqueKey, hits, limit, duration = 1, 2, 3, 4, 5
	m = protowire.AppendString(protowire.AppendTag(m, name, protowire.BytesType), "api")
	m = protowire.AppendString(protowire.AppendTag(m, uniqueKey, protowire.BytesType), key)
	m = protowire.AppendVarint(protowire.AppendTag(m, hits, protowire.VarintType), 1)
	m = protowire.AppendVarint(protowire.AppendTag(m, limit, protowire.VarintType), 1e15)
	return protowire.AppendVarint(protowire.AppendTag(m, duration, protowire.VarintType), 60_000)
}

// underLimit counts the responses of a GetRateLimitsResp that let pass.
func underLimit(answer []byte) (n int, err error) {
	err = eachField(answer, func(field protowire.Number, value []byte, _ uint64) error {
		if field != 1 {
			return nil
		}
		n++
		return eachField(value, func(field protowire.Number, value []byte, number uint64) error {
			switch {
			case field == 1 && number != 0: // status
				return errNotAllowed
			case field == 5 && len(value) > 0: // error
				return fmt.Errorf("gubernator: %s", value)
			}
			return nil
		})
	})
	return n, err
}

var errBadMessage = errors.New("not a message of gubernator")

// eachField calls f with each field of a message: a number, or what is in a string or a message.
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

// asIs is a codec whose messages are bytes.
type asIs struct{}

func (asIs) Name() string { return "proto" }

func (asIs) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (asIs) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte(nil), data...)
	return nil
}
