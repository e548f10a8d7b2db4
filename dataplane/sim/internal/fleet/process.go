package fleet

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/sim/internal/network"
	"github.com/weirhq/weir/dataplane/store"
)

// Process is a process of a node: a limiter, a relay or both, and their links to servers.
type Process struct {
	Limiter *dataplane.Limiter // nil for a process with only a relay
	Relay   *relay.Relay       // nil for a process without a relay
	Origin  *network.Origin    // its region's origin, over ToOrigin

	ToOrigin, ToMySQL, ToPeers *network.Link // nil if the process has no such link

	// Sent is set once Stop has sent all cost that the limiter had accepted.
	Sent atomic.Bool
}

// NewProcess returns a process that has neither limiter nor relay yet. It calls origin over toOrigin.
func (w *World) NewProcess(origin store.FullOrigin, toOrigin, toMySQL *network.Link) *Process {
	return &Process{
		Origin:   &network.Origin{FullOrigin: origin, Link: toOrigin, Meters: &w.Origins},
		ToOrigin: toOrigin, ToMySQL: toMySQL,
	}
}

// AddRelay adds a relay to a process. The relay reads c.Settings, if set, stores counts in c.Counts, and calls its
// origin and the feed, all over the process's links. If the process has a limiter, the relay uses the limiter's tuning.
func (w *World) AddRelay(p *Process, c relay.Config) (err error) {
	way := &network.Statements{Link: p.ToMySQL, Database: &w.Database, Meters: &w.MySQL}
	c.Origin, c.Feed = p.Origin, network.Feed{Feed: w.Feed, Statements: way}
	c.Counts = network.Counts{CountStore: c.Counts, Statements: way}
	if c.Settings != nil {
		c.Settings = &network.Settings{From: c.Settings, Statements: way}
	}
	if p.Limiter != nil {
		c.Tuning = func() relay.Tuning {
			t := p.Limiter.RelayTuning()
			return relay.Tuning{
				Interval: t.FeedInterval, SettingsInterval: t.SettingsInterval, Floor: t.Floor, Step: t.Step,
				MinGlobalDuration: t.MinGlobalDuration, StoreFloor: relay.StoreFloor, StoreSteps: relay.StoreSteps,
			}
		}
	}
	if p.Relay, err = relay.New(c); err != nil {
		return fmt.Errorf("start the relay %s of %s: %w", c.Holder, c.Region, err)
	}
	return nil
}

// Start starts the limiter, and then the relay.
func (p *Process) Start() error {
	if p.Limiter != nil {
		if err := p.Limiter.Start(context.Background()); err != nil {
			return err
		}
	}
	if p.Relay != nil {
		return p.Relay.Start(context.Background())
	}
	return nil
}

// Kill ends a process as kill -9 does: it sends nothing more, and its unsent cost is lost. Its loops end, too.
func (w *World) Kill(p *Process) {
	for _, l := range []*network.Link{p.ToOrigin, p.ToMySQL, p.ToPeers} {
		if l != nil {
			l.Set(func(l *network.Link) { l.Dead = true })
		}
	}
	w.killed.Go(func() { p.Stop(0) })
}

// Stop stops a process in order, within a time. It returns no error: checks find the cost that the limiter could not
// send, and a lease that the relay could not release expires.
func (p *Process) Stop(within time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if p.Limiter != nil {
		p.Sent.Store(p.Limiter.Stop(ctx) == nil)
	}
	if p.Relay != nil {
		_ = p.Relay.Stop(ctx)
	}
}
