package guides

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/guides/mapstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
)

func TestMyOriginKeepsTheContract(t *testing.T) {
	storetest.TestOrigin(t, func(t testing.TB) storetest.Origin {
		origin := mapstore.New()
		return storetest.Origin{
			Origin: origin,
			Client: func(testing.TB) store.Origin { return origin }, // with servers: another connection
			Wipe:   func(testing.TB) { origin.Wipe() },
			Clock:  func(testing.TB) time.Time { return time.Now() },
			// With servers, also set Lose and State: replies get lost, and replicas lag behind.
		}
	})
}

// twoNodes returns two limiters that share their limits through an origin.
func twoNodes(origin store.Origin) (nodes [2]*dataplane.Limiter, err error) {
	for i := range nodes {
		nodes[i], err = dataplane.New(dataplane.Config{
			Region: "eu",
			Origin: origin,
			// Set RegionNodes, because no heartbeats count the nodes.
			RegionNodes: len(nodes),
		})
		if err != nil {
			return nodes, err
		}
		if err := nodes[i].Start(context.Background()); err != nil {
			return nodes, err
		}
	}
	return nodes, nil
}

// Two limiters of a process share a limit through the store, also after the store has lost its data. Each keeps its own
// reservations.
func TestNodesShareLimitsThroughYourOwnStore(t *testing.T) {
	synctest.Test(t, testNodesShareLimitsThroughYourOwnStore)
}

func testNodesShareLimitsThroughYourOwnStore(t *testing.T) {
	origin := mapstore.New()
	nodes, err := twoNodes(origin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, l := range nodes {
			if err := l.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}()
	uses := func(cost int64) dataplane.Request {
		return dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "alice", Cost: cost, Limit: 100,
			Duration: time.Minute}
	}
	if d := nodes[0].Allow(t.Context(), uses(60)); !d.Allowed {
		t.Errorf("%+v", d)
	}
	time.Sleep(time.Second) // it is sent
	reserved := nodes[1].Reserve(t.Context(), dataplane.ReserveRequest{ID: "r", Requests: []dataplane.Request{uses(41)}})
	if reserved.Err != nil || reserved.Allowed {
		t.Errorf("more than is left: %+v", reserved)
	}
	reserved = nodes[1].Reserve(t.Context(), dataplane.ReserveRequest{ID: "r", Requests: []dataplane.Request{uses(30)}})
	if reserved.Err != nil || !reserved.Allowed {
		t.Errorf("less than is left: %+v", reserved)
	}
	time.Sleep(time.Second)
	origin.Wipe()
	for range 2 { // they notice the loss and send again, and then each receives the other's cost
		for _, l := range nodes {
			l.Allow(t.Context(), uses(1))
		}
		time.Sleep(time.Second)
	}
	if d := nodes[0].Allow(t.Context(), uses(7)); d.Allowed || d.Remaining != 6 {
		t.Errorf("after the loss: %+v", d)
	}
	if _, err := nodes[0].Settle(t.Context(), "r", 30); !errors.Is(err, dataplane.ErrNoReservation) {
		t.Errorf("settled by another process: %v", err)
	}
	if s, err := nodes[1].Settle(t.Context(), "r", 30); err != nil || !s.Settled {
		t.Errorf("settled: %+v, %v", s, err)
	}
}
