package dataplane

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/shared/heartbeat"
)

const heartbeatTimeout = 5 * time.Second

// tend applies new settings and sends a heartbeat.
func (r *reports) tend(ctx context.Context) error {
	g := r.engine
	err := g.rules.Load(ctx)
	r.load.Measure(g.rules.InForce(), g.clock.ReadMs())
	return errors.Join(err, r.beat(ctx, false))
}

// beat sends a heartbeat. stopped marks the last heartbeat of a node that stops.
func (r *reports) beat(ctx context.Context, stopped bool) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	nowMs, now := r.engine.clock.ReadMs(), r.engine.clock.ReadSteady()
	report := r.top.Due(now)
	err := r.cfg.Settings.Heartbeat(ctx, heartbeat.Heartbeat{
		NodeID:        r.cfg.NodeID,
		Region:        r.cfg.Region,
		Build:         r.cfg.Build,
		TuningVersion: r.engine.rules.InForce().Version,
		StartedAtMs:   r.startedAtMs,
		SentAtMs:      nowMs,
		Health:        r.figures(),
		Top:           report,
		Usage:         r.usage(now, stopped),
		Stopped:       stopped,
	})
	r.engine.stats.latency.Turn(nowMs)
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	if report != "" {
		r.top.Sent(now)
	}
	return nil
}

// usage returns the newest document for heartbeat.Usage. The last heartbeat has all cost until then.
func (r *reports) usage(now clock.Steady, stopped bool) string {
	g := r.engine
	return g.usage.Report(now, stopped, func() {
		if g.alone {
			r.local.Collect(g.table, g.clock.ReadMs(), &g.usage)
		}
	})
}

// figures returns this node's health as its heartbeat reports it.
func (r *reports) figures() heartbeat.Health {
	g, m, set := r.engine, r.engine.stats, r.engine.rules.InForce()
	h := heartbeat.Health{
		Entries:         int64(g.table.Len()),
		TableFull:       g.table.Full.Load(),
		TableFullAtMs:   g.wallMs(clock.Steady(g.table.FullSince.Load())),
		PendingCost:     g.out.PendingCost(),
		ReplayErrors:    g.out.Stats.Origin.Errors(collect.OpSend),
		ReplayedAtMs:    g.wallMs(g.out.ReplayedAt()),
		SettingsErrors:  g.rules.Errors(),
		SettingsProblem: g.rules.Problem(),
		SettingsAtMs:    g.wallMs(g.rules.ReadAt()),
		ResetAtMs:       set.ResetAtMs(),
		Trial:           set.TrialNumber,
		TuningHash:      set.Hash,
		DecisionP99Us:   m.latency.P99Us(),
		BreakersOpen:    g.out.BreakersOpen(),
		DroppedCost:     g.out.Stats.DroppedCost(),
	}
	if log := set.Evidence(); log != nil {
		h.Limits = log.Figures(g.clock.ReadSteady())
	}
	if s := r.load.Shape(); s != nil {
		h.ActiveKeys, h.HotKeys = s.Keys, s.Hot
		if g.table.Fleet {
			h.SharedKeys = &s.Shared
		}
	}
	m.eachDecision(func(source Source, out outcome, n int64) {
		if source.Degraded() {
			h.DegradedTotal += n
		}
		switch out {
		case outcomeAllowed:
			h.AllowedTotal += n
		case outcomeDenied:
			h.DeniedTotal += n
		case outcomeShadowed:
			h.ShadowedTotal += n
		}
	})
	return h
}
