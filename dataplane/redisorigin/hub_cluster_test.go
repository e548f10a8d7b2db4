package redisorigin_test

import (
	"testing"

	"github.com/weirhq/weir/dataplane/storetest"
)

func TestHubOnAClusterKeepsTheContract(t *testing.T) {
	nodes := clusterForTest(t)
	way := newLossyWay(t, "redis://"+nodes[0].Options().Addr+"?cluster=true")
	storetest.TestHub(t, func(testing.TB) storetest.Hub { return way.hub(t, nodes...) })
}
