package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/sim/internal/bubble"
	"github.com/weirhq/weir/dataplane/sim/internal/network"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

const (
	// stageInterval is how often the loops of a transcript's nodes read their settings. Within stageTurn each node has
	// read them and has sent the cost that it accepted. Within stagePublish the cost has reached all regions.
	stageInterval = 100 * time.Millisecond
	stageTurn     = 3 * stageInterval
	stagePublish  = 1500 * time.Millisecond
)

// stage is the world that a transcript is played in.
type stage struct {
	*world
	script *Transcript
	ctx    context.Context
	resets []store.ResetRow
}

// Play runs a transcript in a bubble of its own: see PlayHere.
func Play(t *Transcript) (mismatches []string, err error) {
	return bubble.Run(func() ([]string, error) { return PlayHere(t) })
}

// PlayHere runs a transcript in the testing/synctest bubble that it is called in. It returns every line whose result
// differs from the transcript's, and every promise that was broken.
func PlayHere(t *Transcript) (mismatches []string, err error) {
	set := tuning.Default()
	set.Floor, set.Step, set.Jitter = t.Floor, t.Step, 0
	set.SettingsInterval = tuning.Duration(stageInterval)
	document, err := set.Document()
	if err != nil {
		return nil, err
	}
	w := newLimiterWorld(Shape{Nodes: each(len(t.Regions), t.Nodes), names: t.Regions}, document, firstTraffic(set),
		transcriptAtMax, 1)
	w.began = w.began.Truncate(t.Duration).Add(t.Duration) // 0s is the start of a window
	w.ledger.began = w.began
	if err := w.bootAll(set); err != nil {
		return nil, err
	}
	s := &stage{world: w, script: t, ctx: context.Background()}
	for _, scene := range t.Scenes {
		if wait := scene.At - time.Since(w.began); wait > 0 {
			time.Sleep(wait)
		}
		got, err := s.act(&scene)
		if err != nil {
			mismatches = append(mismatches, fmt.Sprintf("line %d: %s: %v", scene.Line, scene.String(), err))
		} else if scene.Want != "" && got != scene.Want {
			mismatches = append(mismatches, fmt.Sprintf("line %d: %s, and not: %s", scene.Line, scene.String(), got))
		}
	}
	w.stopAll()
	for _, v := range w.broken() {
		mismatches = append(mismatches, fmt.Sprintf("%s: %s", v.Promise, v.First))
	}
	return mismatches, nil
}

// cast returns the nodes that a scene applies to.
func (s *stage) cast(sc *Scene) (nodes []*node) {
	for _, r := range s.regions {
		if sc.Region != "*" && sc.Region != r.name {
			continue
		}
		for i, n := range r.nodes {
			if sc.Node == 0 || sc.Node == i+1 {
				nodes = append(nodes, n)
			}
		}
	}
	return nodes
}

func (s *stage) act(sc *Scene) (got string, err error) {
	nodes := s.cast(sc)
	switch sc.Verb {
	case "allow":
		return s.allow(nodes[0], sc)
	case "peek":
		r := s.request(sc.Items[0])
		r.Cost, r.ZeroCost = 0, true
		d := nodes[0].limiter().Peek(s.ctx, r)
		return fmt.Sprintf("%d left", d.Remaining), d.Err
	case "batch":
		return s.batch(nodes[0], sc)
	case "reset":
		s.reset(sc.Items[0].Key)
		return "", nil
	case "replay":
		time.Sleep(stageTurn)
		return s.list(nodes, sc, s.atOrigin)
	case "publish":
		time.Sleep(stagePublish)
		return s.list(nodes, sc, s.foreign)
	case "stored":
		time.Sleep(stagePublish)
		return s.list(nodes, sc, s.inStore)
	default:
		return "", s.befall(nodes, sc)
	}
}

func (s *stage) request(i Item) dataplane.Request {
	r := request(i.Key, s.script.Limit, s.script.Duration)
	r.Cost, r.ZeroCost = i.Cost, i.Cost == 0
	return r
}

// account returns the account of a key since its last reset. Before the reset, the key has another account.
func (s *stage) account(key string) *account {
	cell := s.cell(key)
	s.ledger.mu.Lock()
	a := s.ledger.accounts[cell.Key]
	s.ledger.mu.Unlock()
	if a == nil {
		a = s.ledger.openKey("all", cell.Key, s.script.Limit)
	}
	return a
}

// cell returns the cell that nodes now count a key in, once they have read every reset.
func (s *stage) cell(key string) window.Cell {
	cell := window.Cell{Key: s.ledger.key(s.request(Item{Key: key}))}
	cell.Sequence = window.Sequence(time.Now().UnixMilli(), cell.DurationMs())
	for _, row := range s.resets {
		if row.Identifier == key {
			reset := window.Reset{Generation: window.Generation(row.Generation), AtMs: row.AtMs}
			cell.Generation = reset.GenerationOf(cell.Sequence, cell.DurationMs())
		}
	}
	return cell
}

func (s *stage) allow(n *node, sc *Scene) (string, error) {
	item := sc.Items[0]
	var admitted int64
	any := false
	for range sc.Times {
		d := s.decide(n, s.account(item.Key), item.Cost)
		if d.Err != nil {
			return "", d.Err
		}
		if d.Allowed {
			admitted += item.Cost
			any = true
		}
	}
	if !any {
		return "denied", nil
	}
	return fmt.Sprintf("%d allowed", admitted), nil
}

func (s *stage) batch(n *node, sc *Scene) (string, error) {
	var requests []dataplane.Request
	for _, i := range sc.Items {
		requests = append(requests, s.request(i))
	}
	began := time.Now()
	b := n.limiter().AllowMany(s.ctx, requests)
	if b.Err != nil {
		return "", b.Err
	}
	if !b.Allowed {
		return "denied", nil
	}
	for i, item := range sc.Items {
		a := s.account(item.Key)
		s.note(n, a, item.Cost, a.limit, began, &b.Decisions[i])
	}
	return "allowed", nil
}

// reset stores a reset, and waits until every node that can read it has read it.
func (s *stage) reset(key string) {
	r, nowMs := s.request(Item{Key: key}), time.Now().UnixMilli()
	s.resets = append(s.resets, store.ResetRow{
		Workspace: r.Workspace, Namespace: r.Namespace, Identifier: key, Generation: int64(len(s.resets)) + 1,
		AtMs: nowMs, ExpiresAtMs: nowMs + 2*transcriptAtMax.Milliseconds(),
	})
	s.Counts.SetResets(s.resets...)
	time.Sleep(stageTurn)
}

// list returns the values of each region in the form of the scene's expectation. It leaves out regions that the
// expectation does not name.
func (s *stage) list(nodes []*node, sc *Scene, of func(*node, window.Cell) string) (string, error) {
	if sc.Want == "" {
		return "", nil
	}
	cell := s.cell(defaultKey)
	var parts []string
	for _, r := range s.regions {
		seen := make(map[string]bool) // equal values of a region's nodes are listed once
		for _, n := range nodes {
			if n.region == r {
				seen[of(n, cell)] = true
			}
		}
		for _, one := range slices.Sorted(maps.Keys(seen)) {
			if part := strings.TrimSpace(r.name + " " + one); strings.Contains(sc.Want, r.name) {
				parts = append(parts, part)
			}
		}
	}
	return strings.Join(parts, ", "), nil
}

func (s *stage) atOrigin(n *node, c window.Cell) string {
	return some(n.region.origin.Totals()[c].Region)
}

func (s *stage) foreign(n *node, c window.Cell) string {
	return "foreign " + some(n.region.origin.Totals()[c].Foreign)
}

func (s *stage) inStore(n *node, c window.Cell) string {
	for _, row := range s.Counts.Rows() {
		if row.Cell == c && row.Region == n.region.name {
			return some(row.Count)
		}
	}
	return some(0)
}

func some(n int64) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

// befall applies a fault to nodes, for example a cut or a crash.
func (s *stage) befall(nodes []*node, sc *Scene) error {
	var errs []error
	for _, n := range nodes {
		switch sc.Verb {
		case "cut", "heal":
			way := n.life.Load().ToOrigin
			if sc.Server == "mysql" {
				way = n.life.Load().ToMySQL
			}
			way.Set(func(l *network.Link) { l.Down = sc.Verb == "cut" })
		case "wipe":
			n.region.origin.Wipe()
		case "clock":
			n.clock.Move(sc.Shift)
		case "crash":
			s.Kill(n.life.Load())
			errs = append(errs, s.boot(n))
		case "restart":
			n.life.Load().Stop(stopTimeout) // the next lines check the cost that it could not send
			errs = append(errs, s.boot(n))
		}
	}
	time.Sleep(time.Millisecond) // so that nodes that have started have their settings
	return errors.Join(errs...)
}
