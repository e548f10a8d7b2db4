package node

import (
	"context"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/weirhq/weir/dataplane/node/rls"
	kuadrantv1 "github.com/weirhq/weir/shared/gen/proto/kuadrant/service/ratelimit/v1"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// utterances are messages that make sense, by the method that takes them.
var utterances = []struct {
	procedure string
	streams   bool
	message   proto.Message
}{
	{weirv1connect.RateLimitServiceLimitProcedure, false, askedOnTheWire},
	{weirv1connect.RateLimitServiceLimitManyProcedure, false, &weirv1.LimitManyRequest{Requests: []*weirv1.LimitRequest{askedOnTheWire, askedOnTheWire}}},
	{weirv1connect.RateLimitServicePeekProcedure, false, &weirv1.PeekRequest{Workspace: "w", Namespace: "n", Identifier: "i", Limit: 1, DurationMs: 1000}},
	{weirv1connect.RateLimitServiceRefundProcedure, false, &weirv1.RefundRequest{Workspace: "w", Namespace: "n", Identifier: "i", DurationMs: 1000, Cost: 1}},
	{weirv1connect.RateLimitServiceExplainProcedure, false, &weirv1.ExplainRequest{Workspace: "w", Namespace: "n", Identifier: "i", Limit: 1, DurationMs: 1000}},
	{weirv1connect.RateLimitServiceTopKeysProcedure, false, &weirv1.TopKeysRequest{By: weirv1.TopBy_TOP_BY_HOT, Limit: 5}},
	{weirv1connect.RateLimitServiceReserveProcedure, false, &weirv1.ReserveRequest{Id: "r", TtlMs: 1000, Holder: "h",
		Requests: []*weirv1.LimitRequest{askedOnTheWire, askedOnTheWire}}},
	{weirv1connect.RateLimitServiceSettleProcedure, false, &weirv1.SettleRequest{Id: "r", Costs: []int64{7, 8}, More: true}},
	{weirv1connect.RateLimitServiceCancelProcedure, false, &weirv1.CancelRequest{Id: "r"}},
	{weirv1connect.RateLimitServiceExtendProcedure, false, &weirv1.ExtendRequest{Id: "r", TtlMs: 1000}},
	{weirv1connect.RateLimitServiceAcquireProcedure, false, &weirv1.AcquireRequest{Workspace: "w", Namespace: "n",
		Identifier: "i", Limit: 3, TtlMs: 1000, Id: "l", Holder: "h", WaitMs: 1}},
	{weirv1connect.RateLimitServiceRenewProcedure, false, &weirv1.RenewRequest{Leases: []string{"AQF3AW4BaQFsAWjoBwE"}}},
	{weirv1connect.RateLimitServiceReleaseProcedure, false, &weirv1.ReleaseRequest{Leases: []string{"AQF3AW4BaQFsAWjoBwE"}}},
	{weirv1connect.RateLimitServiceExplainLeaseProcedure, false, &weirv1.ExplainLeaseRequest{Workspace: "w", Namespace: "n",
		Identifier: "i", Limit: 3}},
	{streamProcedure, true, &weirv1.LimitStreamRequest{Request: askedOnTheWire}},
	{rls.Procedure, false, edgeCall},
	{rls.CheckProcedure, false, edgeCall},
	{rls.ReportProcedure, false, edgeCall},
	{rls.ReserveProcedure, false, &kuadrantv1.ReserveRequest{Domain: "edge", Descriptors: edgeCall.Descriptors, Amount: 7,
		Ttl: durationpb.New(time.Minute)}},
	{rls.CommitProcedure, false, &kuadrantv1.CommitRequest{Domain: "edge", Descriptors: edgeCall.Descriptors,
		ReservationId: "r", ActualAmount: 7}},
	{reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName, true, &reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: "weir.v1.RateLimitService"},
	}},
}

var edgeCall = &rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimitv3.RateLimitDescriptor{
	{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: "1"}}},
	{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "soft", Value: "1"}}},
}}

// babble makes calls whose wire is right and whose messages are nearly: some bytes
// of them changed, or cut off, or many times too many.
func babble(ctx context.Context, t *testing.T, address net.Addr, random *rand.Rand) {
	conn, err := grpc.NewClient(address.String(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.ForceCodec(asBytes{})))
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	for ctx.Err() == nil {
		u := utterances[random.IntN(len(utterances))]
		message, err := proto.Marshal(u.message)
		if err != nil {
			t.Error(err)
			return
		}
		call, done := context.WithTimeout(ctx, 2*time.Second)
		if message = garble(message, random); u.streams {
			_ = converse(call, conn, u.procedure, message, random)
		} else {
			_ = conn.Invoke(call, u.procedure, message, new([]byte))
		}
		done()
	}
}

// converse sends the same message several times over a stream, and then abandons the stream or waits for its end.
func converse(ctx context.Context, conn *grpc.ClientConn, procedure string, message []byte, random *rand.Rand) error {
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, procedure)
	if err != nil {
		return err
	}
	for range random.IntN(8) {
		if err := stream.SendMsg(message); err != nil {
			return err
		}
	}
	if random.IntN(2) == 0 {
		return nil // the caller cancels it
	}
	_ = stream.CloseSend()
	for err == nil {
		err = stream.RecvMsg(new([]byte))
	}
	return err
}

// garble changes a message, sometimes to a message above every bound.
func garble(message []byte, random *rand.Rand) []byte {
	switch random.IntN(20) {
	case 0:
		return append(message, make([]byte, batchBodyBytesMax+1)...)
	case 1, 2, 3:
		return message // as it is
	case 4, 5, 6:
		return message[:random.IntN(len(message)+1)]
	}
	for range 1 + random.IntN(3) {
		message[random.IntN(len(message))] = byte(random.Uint32())
	}
	return message
}

// asBytes is a codec for messages that are bytes already.
type asBytes struct{}

func (asBytes) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (asBytes) Unmarshal(data []byte, v any) error {
	*v.(*[]byte) = data
	return nil
}
func (asBytes) Name() string { return "proto" }
