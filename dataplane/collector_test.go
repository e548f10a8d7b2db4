package dataplane_test

import (
	"testing"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
)

// Dashboards and alerts join every series of a target to the series that names its node. A program that embeds the
// limiter registers only its collector, so the limiter must have that series.
func TestTheCollectorNamesItsNode(t *testing.T) {
	origin := memstore.NewOrigin(memstore.OriginOptions{})
	for name, test := range map[string]struct {
		config dataplane.Config
		want   string
	}{
		"of a region": {
			dataplane.Config{Region: "eu", NodeID: "eu-1", Build: "v1.2.3", Origin: origin},
			`weir_node_info{build="v1.2.3",node_id="eu-1",region="eu"}`,
		},
		"alone": {dataplane.Config{NodeID: "here"}, `weir_node_info{build="",node_id="here",region=""}`},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := dataplane.New(test.config)
			if err != nil {
				t.Fatal(err)
			}
			if got := gather(t, l); got[test.want] != 1 {
				t.Errorf("%s is %v, want 1", test.want, got[test.want])
			}
		})
	}
}
