package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
)

// gubernator's messages are written here by hand: the package that has them has its whole server too, with requirements
// that ours cannot be had with.

// getRateLimits sends as many limits in each call.
func getRateLimits(limits int) func(context.Context, *server, int) (callers, error) {
	return func(_ context.Context, s *server, n int) (callers, error) {
		return dial(s.grpc, n, func(conn *grpc.ClientConn, i int) call {
			var message []byte
			for j := range limits {
				message = protowire.AppendTag(message, 1, protowire.BytesType)
				message = protowire.AppendBytes(message, rateLimitReq(fmt.Sprint("user_", limits*i+j)))
			}
			return invoke(conn, "/pb.gubernator.V1/GetRateLimits", message, func(answer []byte) (bool, error) {
				under, err := underLimit(answer)
				return under == limits, err
			})
		})
	}
}

// rateLimitReq returns a RateLimitReq: a cost of 1 against a token bucket that never empties.
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
