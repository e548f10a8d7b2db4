package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/previews"
)

// previewCalls returns the same response to each call, and records the request.
type previewCalls struct {
	asked previews.Request
	err   error
}

func (p *previewCalls) Preview(_ context.Context, req previews.Request) (previews.Answer, error) {
	p.asked = req
	return previews.Answer{
		Shape:   previews.FleetShape{Nodes: []int{4, 3}, Keys: 240_000, HotShare: 0.1, OverlapShare: 0.05, Limit: 100, WindowMs: 60_000, Assumed: []string{"limit", "window_ms"}},
		OldText: `{"floor":0.5}`, NewText: `{"floor":0.2}`, TookMs: 4200,
		Predictions: previews.Predictions{
			Old: previews.Prediction{FeedIntervalMs: 10_000, RowsWrittenPerS: 100, RowsReadPerS: 2000, ConvergenceP50Ms: 5000, ConvergenceP99Ms: 66_000, HotConvergeP99Ms: 24_641, UnknownShare: 0.471, Overshoot: 3, OrdinaryOvershoot: 1.5},
			New: previews.Prediction{FeedIntervalMs: 200, RowsWrittenPerS: 250, RowsReadPerS: 1000, ConvergenceP50Ms: 1000, ConvergenceP99Ms: 2900, HotConvergeP99Ms: 900, Overshoot: 1.2, OrdinaryOvershoot: 1.1},
			Curve: []previews.Prediction{
				{FeedIntervalMs: 50, RowsWrittenPerS: 400, Overshoot: 1}, {FeedIntervalMs: 1000, RowsWrittenPerS: 150, Overshoot: 2},
			},
			KeysSimulated: 500, NodesSimulated: 7, Notes: []string{"500 of 240000 keys were simulated"},
		},
	}, p.err
}

func TestRolloutPreview(t *testing.T) {
	w := newWorld(t)
	w.want(t, w.run(t, "rollout", "preview", "--tuning", path(t, controltest.Document("floor=0.2"))), exitOK, `
7 nodes in 2 regions; 240,000 keys active in a window of 1m, with limits of 100; 10 % hot, 5 % in several regions
assumed, unless set by these flags: --limit, --duration

PREDICTED                     OLD    NEW    NEW/OLD
MySQL rows written a second   100    250    2.5
MySQL rows read a second      2,000  1,000  0.5
convergence delay, median     5s     1s     0.2
convergence delay, 99 %       1m6s   2.9s   0.0439
  of keys near their limit    25s    900ms  0.0365
share never sent elsewhere    0.471  0      0
admitted/limit, worst caller  3      1.2    0.4
admitted/limit, ordinary      1.5    1.1    0.733

admitted/limit of the worst caller, by MySQL rows written and read a second
       3 |                                                           O
         |
         |
         |
         |
         |*
         |
         |
         |
         |
         |                                 N
       1 |        *
         +------------------------------------------------------------
          150                                                    2,100
O old   N new   B both   * new with other feed intervals

- 500 of 240000 keys were simulated
- simulated in 4.2s
`)
	if a := w.previews.asked; a.NoFleet || a.Old != "" || a.New != controltest.Document("floor=0.2") || a.TimeMaxMs != 10_000 || a.Given != (previews.GivenShape{}) {
		t.Errorf("asked %+v", a)
	}
	if code := w.run(t, "rollout", "preview", "--tuning", "rfc", "-o", "json"); code != exitOK || !json.Valid(w.stdout.Bytes()) || !strings.Contains(w.stdout.String(), `"overshoot": 1.2`) {
		t.Errorf("exit %d, %s", code, w.stdout.String())
	}
	w.previews.err = fmt.Errorf("%w: another preview is under way", controlplane.ErrConflict)
	if code := w.run(t, "rollout", "preview", "--tuning", "rfc"); code != exitFailure || !strings.Contains(w.stderr.String(), "another preview is under way") {
		t.Errorf("exit %d, %s", code, w.stderr.String())
	}
}

// A fleet of any shape, that need not exist.
func TestSimulate(t *testing.T) {
	w := newWorld(t)
	if code := w.run(t, "simulate", "--regions", "5", "--nodes", "2", "--keys", "1000", "--hot", "0.5", "--overlap", "0.1", "--limit", "20", "--duration", "10m", "--within", "30s"); code != exitOK {
		t.Fatalf("exit %d, %s", code, w.stderr.String())
	}
	a := w.previews.asked
	g := a.Given
	if !a.NoFleet || *g.Regions != 5 || *g.NodesPerRegion != 2 || *g.Keys != 1000 || *g.HotShare != 0.5 || *g.OverlapShare != 0.1 || *g.Limit != 20 || *g.WindowMs != 600_000 || a.TimeMaxMs != 30_000 {
		t.Errorf("asked %+v", a)
	}
	if code := w.run(t, "simulate", "--tuning", "rfc", "--set", "floor=0.4"); code != exitOK || !strings.Contains(w.previews.asked.New, `"floor":0.4,"step":0,`) {
		t.Errorf("exit %d, %s, %s", code, w.previews.asked.New, w.stderr.String())
	}
	if !strings.Contains(a.New, `"floor":0.1`) || !strings.Contains(a.Old, `"floor":0.5`) {
		t.Errorf("default against rfc: %s, %s", a.New, a.Old)
	}
}
