package dataplane_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// A held lease stays held if its limit is lowered, also to 0: the same call again, at any node, returns it.
func TestAHeldTokenOutlivesALimitOfNothing(t *testing.T) {
	for _, fleet := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			origin := memstore.NewOrigin(memstore.OriginOptions{})
			node := func() *dataplane.Limiter {
				if !fleet {
					return acquirer(t, dataplane.Config{})
				}
				return acquirer(t, dataplane.Config{Region: "eu", Origin: origin.Client()})
			}
			nodes := []*dataplane.Limiter{node()}
			if fleet {
				nodes = append(nodes, node())
			}
			time.Sleep(11 * time.Second)
			token, d := nodes[0].AcquireToken(t.Context(), jobs(5), "held", false)
			if token == "" {
				t.Fatalf("%+v", d)
			}
			for i, l := range nodes {
				if again, d := l.AcquireToken(t.Context(), jobs(0), "held", false); again == "" || !d.Allowed {
					t.Errorf("fleet %v, node %d, the same again: %+v", fleet, i, d)
				}
				if other, d := l.AcquireToken(t.Context(), jobs(0), "other", false); other != "" || d.Allowed {
					t.Errorf("fleet %v, node %d, another: %+v", fleet, i, d)
				}
			}
			if err := nodes[0].ReleaseTokens(t.Context(), token)[0]; err != nil {
				t.Fatal(err)
			}
			if again, d := nodes[0].AcquireToken(t.Context(), jobs(0), "held", false); again != "" || d.Allowed {
				t.Errorf("fleet %v, after its release: %+v", fleet, d)
			}
		})
	}
}
