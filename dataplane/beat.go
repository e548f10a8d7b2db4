package dataplane

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/dataplane/internal/collect"
	"github.com/weirhq/weir/shared/heartbeat"
)

// beat reports this node; a stopped one for the last time.
func (l *Limiter) beat(ctx context.Context, stopped bool) error {
	ctx, cancel := context.WithTimeout(ctx, settingsTimeout)
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
		TuningVersion: l.settings.Load().version,
		StartedAtMs:   l.metrics.startedAtMs,
		SentAtMs:      nowMs,
		Health:        l.figures(),
		Top:           report,
		Stopped:       stopped,
	})
	l.metrics.latency.Turn(nowMs)
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
	m, set := l.metrics, l.settings.Load()
	h := heartbeat.Health{
		Entries:        int64(l.table.Len()),
		TableFull:      l.table.Full.Load(),
		TableFullAtMs:  l.wallMs(clock.Steady(l.table.FullSince.Load())),
		PendingCost:    l.out.PendingCost(),
		ReplayErrors:   l.out.Stats.Origin.Errors(collect.OpSend),
		ReplayedAtMs:   l.wallMs(l.out.ReplayedAt()),
		SettingsErrors: m.settingsErrors.Load(),
		SettingsAtMs:   l.wallMs(clock.Steady(m.settingsAt.Load())),
		ResetAtMs:      set.resets.atMs,
		Trial:          set.number,
		TuningHash:     set.hash,
		DecisionP99Us:  m.latency.P99Us(),
		BreakersOpen:   l.out.BreakersOpen(),
		DroppedCost:    l.out.Stats.DroppedCost(),
	}
	if s := l.shape.Load(); s != nil {
		h.ActiveKeys, h.HotKeys = s.keys, s.hot
		if l.table.Fleet {
			h.SharedKeys = &s.shared
		}
	}
	if problem := m.settingsProblem.Load(); problem != nil {
		h.SettingsProblem = *problem
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
