// Package gubernator measures gubernator as a library: a single node that owns every key, called in process, so that no
// decision crosses a network. It is a module of its own because its requirements and the other rivals' exclude each
// other.
package gubernator

import (
	"context"
	"io"
	"time"

	guber "github.com/gubernator-io/gubernator/v2"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc"

	"github.com/weirhq/weir/dataplane/benchmarks/workload"
)

// self is an address that is never dialled: the node is its own only peer.
const self = "127.0.0.1:1"

var limiter = workload.Limiter{Name: "gubernator", Rival: true, New: func(limit int64) (workload.Decide, func()) {
	node := start()
	return func(identifier string) bool {
		answer, err := node.GetRateLimits(context.Background(), &guber.GetRateLimitsReq{Requests: []*guber.RateLimitReq{{
			Name: "api", UniqueKey: identifier, Hits: 1, Limit: limit,
			Duration: time.Hour.Milliseconds(), Algorithm: guber.Algorithm_TOKEN_BUCKET,
		}}})
		return err == nil && answer.Responses[0].Error == "" && answer.Responses[0].Status == guber.Status_UNDER_LIMIT
	}, func() { _ = node.Close() }
}}

// start makes a node whose table has room for every case.
func start() *guber.V1Instance {
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	node, err := guber.NewV1Instance(guber.Config{
		GRPCServers:   []*grpc.Server{grpc.NewServer()},
		CacheSize:     2_000_000,
		AdvertiseAddr: self,
		Logger:        quiet.WithField("node", self),
	})
	if err != nil {
		panic(err) // fails only if the configuration is wrong, and it is constant
	}
	node.SetPeers([]guber.PeerInfo{{GRPCAddress: self, IsOwner: true}})
	return node
}
