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

// Process is one process of a node: a limiter, a relay or both, and their ways to servers.
type Process struct {
	Limiter *dataplane.Limiter // nil of a process that only relays
	Relay   *relay.Relay       // nil of a process that does not relay
	Origin  *network.Origin    // its region's, over ToOrigin

	ToOrigin, ToMySQL, ToPeers *network.Link // nil where there is no such way

	// Sent is true once Stop has sent everything that the limiter had accepted.
	Sent atomic.Bool
}

// NewProcess returns a process that has neither limiter nor relay yet. It calls origin over toOrigin.
func (w *World) NewProcess(origin store.FullOrigin, toOrigin, toMySQL *network.Link) *Process {
	return &Process{
		Origin:   &network.Origin{FullOrigin: origin, Link: toOrigin, Meters: &w.Origins},
		ToOrigin: toOrigin, ToMySQL: toMySQL,
	}
}

// AddRelay gives a process a relay. The relay reads c.Settings, if set, stores counts in c.Counts, and calls its origin
// and the feed, all over the process's links. Beside a limiter it has the limiter's tuning.
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

// Kill ends a process as kill -9 does: it sends nothing more, and what it had not sent is gone. Its loops end, too.
func (w *World) Kill(p *Process) {
	for _, l := range []*network.Link{p.ToOrigin, p.ToMySQL, p.ToPeers} {
		if l != nil {
			l.Set(func(l *network.Link) { l.Dead = true })
		}
	}
	w.killed.Go(func() { p.Stop(0) })
}

// Stop ends a process in order, within a time. It returns no error: checks find what the limiter could not send, and a
// lease that the relay could not release ends by itself.
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
