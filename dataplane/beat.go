package dataplane

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/shared/heartbeat"
)

const heartbeatTimeout = 5 * time.Second

// beat reports this node; a stopped one for the last time.
func (l *Limiter) beat(ctx context.Context, stopped bool) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	nowMs, now := l.nowMs(), int64(l.clock.ReadSteady())
	report := ""
	if now-l.top.reportedAt.Load() >= reportEvery.Milliseconds() {
		report = l.topReport()
	}
	err := l.cfg.Settings.Heartbeat(ctx, heartbeat.Heartbeat{
		NodeID:        l.cfg.NodeID,
		Region:        l.cfg.Region,
		Build:         l.cfg.Build,
		TuningVersion: l.rules.InForce().Version,
		StartedAtMs:   l.startedAtMs,
		SentAtMs:      nowMs,
		Health:        l.figures(),
		Top:           report,
		Stopped:       stopped,
	})
	l.engine.stats.latency.Turn(nowMs)
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	if report != "" {
		l.top.reportedAt.Store(now)
	}
	return nil
}

// figures are this node's own, as its heartbeat reports them.
func (l *Limiter) figures() heartbeat.Health {
	m, set := l.engine.stats, l.rules.InForce()
	h := heartbeat.Health{
		Entries:         int64(l.table.Len()),
		TableFull:       l.table.Full.Load(),
		TableFullAtMs:   l.engine.wallMs(clock.Steady(l.table.FullSince.Load())),
		PendingCost:     l.out.PendingCost(),
		ReplayErrors:    l.out.Stats.Origin.Errors(collect.OpSend),
		ReplayedAtMs:    l.engine.wallMs(l.out.ReplayedAt()),
		SettingsErrors:  l.rules.Errors(),
		SettingsProblem: l.rules.Problem(),
		SettingsAtMs:    l.engine.wallMs(l.rules.ReadAt()),
		ResetAtMs:       set.ResetAtMs(),
		Trial:           set.TrialNumber,
		TuningHash:      set.Hash,
		DecisionP99Us:   m.latency.P99Us(),
		BreakersOpen:    l.out.BreakersOpen(),
		DroppedCost:     l.out.Stats.DroppedCost(),
	}
	if s := l.shape.Load(); s != nil {
		h.ActiveKeys, h.HotKeys = s.keys, s.hot
		if l.table.Fleet {
			h.SharedKeys = &s.shared
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
