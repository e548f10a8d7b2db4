package previews

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/fleet"
	"github.com/weirhq/weir/controlplane/internal/controltest"
	"github.com/weirhq/weir/controlplane/rollout"
	"github.com/weirhq/weir/controlplane/tunings"
	"github.com/weirhq/weir/shared/heartbeat"
)

func beatOf(region, node string, h heartbeat.Health, now time.Time) fleet.Row {
	text, err := json.Marshal(h)
	if err != nil {
		panic(err)
	}
	return fleet.Row{Heartbeat: heartbeat.Heartbeat{NodeID: node, Region: region}, SeenAt: now, Health: string(text)}
}

// previewed keeps its input, and waits if the test makes it wait.
type previewed struct {
	ask   Ask
	began chan struct{}
}

func (p *previewed) Preview(ctx context.Context, ask Ask) (Predictions, error) {
	p.ask = ask
	if p.began != nil {
		close(p.began)
		<-ctx.Done()
		return Predictions{}, ctx.Err()
	}
	return Predictions{New: Prediction{FeedIntervalMs: 300}}, nil
}

// previewLand is a fleet of given heartbeats.
type previewLand struct {
	rollout.Store
	now  time.Time
	rows []fleet.Row
}

func (l previewLand) NewestTunings(context.Context) ([]tunings.RegionTuning, error) { return nil, nil }

func (l previewLand) FleetNodes(context.Context, int) (time.Time, []fleet.Row, error) {
	return l.now, l.rows, nil
}

// Previews use the fleet's own recorded shape: from heartbeats, or else from flags, or else from defaults, which the
// output lists as assumed.
func TestPreviewTakesTheFleetsShape(t *testing.T) {
	l := previewLand{now: controltest.Day}
	shared := int64(300)
	rows := []fleet.Row{
		beatOf("eu", "eu-1", heartbeat.Health{ActiveKeys: 1000, HotKeys: 100, SharedKeys: &shared}, l.now),
		beatOf("eu", "eu-2", heartbeat.Health{ActiveKeys: 900, HotKeys: 80, SharedKeys: &shared}, l.now),
		beatOf("us", "us-1", heartbeat.Health{ActiveKeys: 500, HotKeys: 50, SharedKeys: &shared}, l.now),
		beatOf("us", "us-dead", heartbeat.Health{ActiveKeys: 90_000}, l.now.Add(-time.Hour)),
	}
	older := []fleet.Row{beatOf("eu", "eu-1", heartbeat.Health{}, l.now)}
	for _, c := range []struct {
		what string
		rows []fleet.Row
		req  Request
		want FleetShape
	}{
		{
			"all from heartbeats: 600 of 1,500 keys are told of by two regions, which makes 300 of 1,200", rows, Request{},
			FleetShape{Nodes: []int{2, 1}, Keys: 1200, HotShare: 0.1, OverlapShare: 0.25, Limit: 100, WindowMs: 60_000, Assumed: []string{"limit", "window_ms"}},
		},
		{
			"a node of an older build tells nothing of its keys", older, Request{},
			FleetShape{Nodes: []int{1}, Keys: 24_000, HotShare: 0.1, OverlapShare: 0.05, Limit: 100, WindowMs: 60_000, Assumed: []string{"keys", "hot_share", "overlap_share", "limit", "window_ms"}},
		},
		{
			"what is given comes first", rows, Request{Given: GivenShape{Regions: new(int32(3)), Keys: new(int64(7)), Limit: new(int64(5))}},
			FleetShape{Nodes: []int{2, 2, 2}, Keys: 7, HotShare: 0.1, OverlapShare: 0.25, Limit: 5, WindowMs: 60_000, Assumed: []string{"window_ms"}},
		},
		{
			"no fleet", rows, Request{NoFleet: true, Given: GivenShape{Regions: new(int32(1)), HotShare: new(0.0)}},
			FleetShape{Nodes: []int{3}, Keys: 24_000, HotShare: 0, OverlapShare: 0.05, Limit: 100, WindowMs: 60_000, Assumed: []string{"nodes_per_region", "keys", "overlap_share", "limit", "window_ms"}},
		},
	} {
		p := &previewed{}
		c.req.New = controltest.Document("floor=0.3")
		a, err := New(p, rollout.NewWork(previewLand{now: l.now, rows: c.rows}, 30*time.Second)).Preview(t.Context(), c.req)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		s := a.Shape
		if !slices.Equal(s.Nodes, c.want.Nodes) || s.Keys != c.want.Keys || s.HotShare != c.want.HotShare || s.OverlapShare != c.want.OverlapShare ||
			s.Limit != c.want.Limit || s.WindowMs != c.want.WindowMs || !slices.Equal(s.Assumed, c.want.Assumed) {
			t.Errorf("%s: %+v, want %+v", c.what, s, c.want)
		}
		if p.ask.Old != controltest.Document() || !strings.Contains(p.ask.New, `"floor":0.3`) || p.ask.TimeMaxMs != 10_000 {
			t.Errorf("%s: asked %+v", c.what, p.ask)
		}
	}
}

// Previews run one at a time: a second caller gets a clear error, and can run a preview when the first preview has
// ended.
func TestPreviewsTakeTurns(t *testing.T) {
	p := &previewed{began: make(chan struct{})}
	previews := New(p, rollout.NewWork(previewLand{now: controltest.Day, rows: []fleet.Row{beatOf("eu", "eu-1", heartbeat.Health{}, controltest.Day)}}, 30*time.Second))
	ctx, cancel := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() {
		_, err := previews.Preview(ctx, Request{New: controltest.Document("floor=0.3")})
		first <- err
	}()
	<-p.began
	if _, err := previews.Preview(t.Context(), Request{New: controltest.Document("floor=0.3")}); !errors.Is(err, controlplane.ErrConflict) || !strings.Contains(err.Error(), "another preview is under way") {
		t.Errorf("the second: %v", err)
	}
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("the first, cancelled: %v", err)
	}
	p.began = nil
	if _, err := previews.Preview(t.Context(), Request{New: controltest.Document("floor=0.3")}); err != nil {
		t.Errorf("the third: %v", err)
	}
}

func TestPreviewRefusals(t *testing.T) {
	previews := New(&previewed{}, rollout.NewWork(previewLand{now: controltest.Day, rows: []fleet.Row{beatOf("eu", "eu-1", heartbeat.Health{}, controltest.Day)}}, 30*time.Second))
	for want, req := range map[string]Request{
		"floor is 2":                          {New: `{"floor":2}`},
		"step is 3":                           {New: controltest.Document("floor=0.3"), Old: `{"step":3}`},
		"time_max_ms is 4999 (5000 to 60000)": {New: controltest.Document("floor=0.3"), TimeMaxMs: 4999},
		"time_max_ms is 60001":                {New: controltest.Document("floor=0.3"), TimeMaxMs: 60_001},
		"regions is 0":                        {New: controltest.Document("floor=0.3"), Given: GivenShape{Regions: new(int32(0))}},
		"nodes_per_region is 20000":           {New: controltest.Document("floor=0.3"), Given: GivenShape{NodesPerRegion: new(int32(20_000))}},
		"keys is 0":                           {New: controltest.Document("floor=0.3"), Given: GivenShape{Keys: new(int64(0))}},
		"hot_share is 1.5":                    {New: controltest.Document("floor=0.3"), Given: GivenShape{HotShare: new(1.5)}},
		"overlap_share is -1":                 {New: controltest.Document("floor=0.3"), Given: GivenShape{OverlapShare: new(-1.0)}},
		"limit is -4":                         {New: controltest.Document("floor=0.3"), Given: GivenShape{Limit: new(int64(-4))}},
		"window_ms is 10":                     {New: controltest.Document("floor=0.3"), Given: GivenShape{WindowMs: new(int64(10))}},
	} {
		if _, err := previews.Preview(t.Context(), req); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
