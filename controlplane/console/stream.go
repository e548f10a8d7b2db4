package console

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/url"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/weirhq/weir/controlplane/console/pulse"
	"github.com/weirhq/weir/controlplane/internal/apiclient"
	"github.com/weirhq/weir/shared/bounded"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

const (
	streamLifetime = 30 * time.Minute // browsers reconnect automatically
	streamWrite    = 10 * time.Second // for one event to a slow reader
	changesEvery   = 2 * time.Second
	vouchEvery     = 500 * time.Millisecond // how often a stream checks that its session and token are still valid
)

// events serves the stream of a page, by its topic:
//
//	fleet            for viewers of all workspaces: history once, then figures with each beat of the pulse
//	rollout (id)     changed, whenever the page's data has changed
//	key (workspace, namespace, identifier): the same
//	rollouts, jobs, health: the same
//	tokens (after): the same, for admins
func (c *Console) events(w http.ResponseWriter, r *http.Request, v *viewer) {
	caller := bounded.CallerOf(r.Context())
	if err := c.streams.Take(caller); err != nil {
		w.Header().Set("Retry-After", "30")
		http.Error(w, "Too many pages are live: this page shows the figures from when it was loaded.",
			http.StatusServiceUnavailable)
		return
	}
	c.live.Add(1)
	defer func() {
		c.streams.Give(caller)
		c.live.Add(-1)
	}()
	ctx, cancel := context.WithTimeout(v.ctx, streamLifetime)
	defer cancel()
	s := &stream{w: w, control: http.NewResponseController(w)}
	if err := s.begin(); err != nil {
		c.Log.WarnContext(ctx, "a stream cannot begin", "error", err)
		return
	}
	if r.FormValue("topic") == "fleet" {
		if len(v.Workspaces) > 0 { // the pulse reads the fleet as the console itself
			return
		}
		c.streamFleet(ctx, s, v)
		return
	}
	c.streamChanges(ctx, s, v, r.FormValue("topic"), r.Form)
}

// inForce reports whether the viewer of a stream may still watch.
func (c *Console) inForce(ctx context.Context, v *viewer) bool {
	if c.StillValid != nil && c.StillValid(v.tls) != nil {
		return false
	}
	if v.session != "" && !c.sessions.Lives(v.session) {
		return false
	}
	_, err := c.backend.whoAmI(ctx, "")
	return err == nil || !unauthenticated(err)
}

// wait waits until there may be something new to send. It returns false when the stream must end:
// the reader has gone, the process ends, or, less than a second ago, the reader's token, session or
// certificate became invalid.
func wait[T any](ctx context.Context, c *Console, v *viewer, next <-chan T) bool {
	vouch := time.NewTicker(vouchEvery)
	defer vouch.Stop()
	for {
		select {
		case <-next:
			return true
		case <-vouch.C:
			if !c.inForce(ctx, v) {
				return false
			}
		case <-ctx.Done():
			return false
		case <-c.over:
			return false
		}
	}
}

// live is the event that the fleet page gets with each beat.
type live struct {
	At       int64                 `json:"at"`
	Problem  string                `json:"problem,omitempty"`
	Total    pulse.Rates           `json:"total"`
	Regions  map[string]liveRegion `json:"regions"`
	Revision string                `json:"revision"`
}

type liveRegion struct {
	pulse.Rates
	Live  int   `json:"live"`
	Nodes int   `json:"nodes"`
	P99   int64 `json:"p99"`
}

func (c *Console) streamFleet(ctx context.Context, s *stream, v *viewer) {
	c.pulse.Look(ctx)
	_, points, _ := c.pulse.Watch()
	if s.send("history", points) != nil {
		return
	}
	for {
		last, _, next := c.pulse.Watch()
		if s.send("fleet", liveOf(last)) != nil || !wait(ctx, c, v, next) {
			return
		}
	}
}

func liveOf(r pulse.Reading) live {
	fleet := describe(r)
	l := live{At: r.At.UnixMilli(), Problem: fleet.Problem, Total: fleet.Now, Regions: make(map[string]liveRegion),
		Revision: fleet.Revision}
	for _, region := range fleet.Regions {
		l.Regions[region.Name] = liveRegion{region.Now, region.Live, len(region.Nodes), region.Delay.P99}
	}
	return l
}

// streamChanges sends an event whenever the data of a topic's page has changed. An outage and its end are changes too.
func (c *Console) streamChanges(ctx context.Context, s *stream, v *viewer, topic string, of url.Values) {
	key := keyOf(of)
	look, ok := map[string]func(context.Context) string{
		"rollout":  printOf(c.backend.Rollouts.RolloutStatus, &controlv1.RolloutStatusRequest{Id: of.Get("id")}, nil),
		"rollouts": printOf(c.backend.Rollouts.ListRollouts, &controlv1.ListRolloutsRequest{}, nil),
		"jobs": func(ctx context.Context) string {
			return printOf(c.backend.Control.CleanupStatus, &controlv1.CleanupStatusRequest{}, nil)(ctx) +
				printOf(c.backend.Retirements.RetirementStatus, &controlv1.RetirementStatusRequest{}, nil)(ctx)
		},
		"key": printOf(c.backend.TopKeys.GetKey, &controlv1.GetKeyRequest{Workspace: key.Workspace,
			Namespace: key.Namespace, Identifier: key.Identifier}, func(found *controlv1.GetKeyResponse) {
			found.NowMs = 0 // the passing of time is not a change
			for _, w := range found.GetWindows() {
				w.Weight, w.Effective, w.Limit = 0, 0, nil
			}
		}),
		"tokens": printOf(c.backend.Tokens.ListTokens, &controlv1.ListTokensRequest{After: of.Get("after")}, nil),
		"health": printOf(c.backend.Health.GetHealth, &controlv1.GetHealthRequest{},
			func(found *controlv1.GetHealthResponse) {
				if h := found.GetHealth(); h != nil {
					h.AtMs = 0 // another look without new findings is not a change
				}
			}),
	}[topic]
	if !ok {
		return
	}
	tick := time.NewTicker(changesEvery)
	defer tick.Stop()
	known := ""
	for {
		now := look(ctx)
		if known != "" && now != known && s.send("changed", map[string]string{"topic": topic}) != nil {
			return
		}
		if known == "" && s.send("watching", map[string]string{"topic": topic}) != nil {
			return
		}
		known = now
		if !wait(ctx, c, v, tick.C) {
			return
		}
	}
}

// printOf returns a function that hashes the response of an RPC, without the fields that forget clears.
func printOf[Q, A any](rpc apiclient.RPC[Q, A], msg *Q, forget func(*A)) func(context.Context) string {
	return func(ctx context.Context) string {
		found, err := apiclient.Ask(ctx, rpc, msg)
		if err != nil {
			return "error: " + apiclient.Words(err)
		}
		if forget != nil {
			forget(found)
		}
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(any(found).(proto.Message))
		if err != nil {
			return "error: " + err.Error()
		}
		h := fnv.New64a()
		_, _ = h.Write(b)
		return fmt.Sprintf("%x", h.Sum64())
	}
}

// stream writes server-sent events.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// begin removes the deadlines that the server sets for other requests. Each event has its own deadline.
func (s *stream) begin() error {
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("lift the deadline: %w", err)
	}
	s.w.Header().Set("Content-Type", "text/event-stream")
	s.w.Header().Set("X-Accel-Buffering", "no")
	return s.write("retry: 3000\n\n")
}

func (s *stream) send(event string, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode an event: %w", err)
	}
	return s.write("event: " + event + "\ndata: " + string(b) + "\n\n")
}

func (s *stream) write(text string) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil {
		return fmt.Errorf("set a deadline: %w", err)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return fmt.Errorf("send an event: %w", err)
	}
	return s.control.Flush()
}
