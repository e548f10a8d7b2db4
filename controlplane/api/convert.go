package api

import (
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane/cleanup"
	"github.com/weirhq/weir/controlplane/fleet"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/heartbeat"
)

func cleanupStatus(s cleanup.Status) *controlv1.CleanupStatus {
	answer := &controlv1.CleanupStatus{
		Running:               s.Running,
		IntervalMs:            s.Interval.Milliseconds(),
		NextAtMs:              unixMs(s.NextAt),
		RunsTotal:             s.Runs,
		ErrorsTotal:           s.Errors,
		RowsDeletedTotal:      s.Rows,
		DeadNodesDeletedTotal: s.DeadNodes,
	}
	if s.Paused != nil {
		answer.PausedBy, answer.PausedReason, answer.PausedAtMs = s.Paused.Actor, s.Paused.Reason, unixMs(s.Paused.At)
	}
	answer.History = each(s.History, runRecord)
	return answer
}

func runRecord(r cleanup.Run) *controlv1.CleanupRunRecord {
	return &controlv1.CleanupRunRecord{
		StartedAtMs:      unixMs(r.StartedAt),
		DurationMs:       r.Took.Milliseconds(),
		RowsDeleted:      r.Rows,
		Batches:          int64(r.Batches),
		Capped:           r.StoppedBy != cleanup.StoppedByNothing,
		StoppedBy:        string(r.StoppedBy),
		Trigger:          r.Trigger,
		Error:            r.Error,
		DeadNodesDeleted: r.DeadNodes,
		LagMs:            r.Lag.Milliseconds(),
	}
}

func fleetResponse(f fleet.Fleet) *controlv1.FleetResponse {
	answer := &controlv1.FleetResponse{NowMs: unixMs(f.Now), Truncated: f.Truncated}
	for _, p := range f.Pairs() {
		answer.Pairs = append(answer.Pairs, &controlv1.ConvergencePair{From: valid(p.From), To: valid(p.To), P99Ms: p.P99Ms,
			Nodes: int32(p.Nodes)})
	}
	for _, n := range f.Nodes {
		answer.Nodes = append(answer.Nodes, &controlv1.Node{
			NodeId:        valid(n.NodeID),
			Region:        valid(n.Region),
			Build:         valid(n.Build),
			TuningVersion: n.TuningVersion,
			StartedAtMs:   n.StartedAtMs,
			SeenAtMs:      unixMs(n.SeenAt),
			AgeMs:         n.Age.Milliseconds(),
			Live:          n.Live,
			ClockSkewMs:   n.ClockSkew.Milliseconds(),
			Health:        nodeHealth(n.Health),
			HealthProblem: valid(n.HealthProblem),
		})
	}
	return answer
}

func nodeHealth(h heartbeat.Health) *controlv1.NodeHealth {
	return &controlv1.NodeHealth{
		AllowedTotal:        h.AllowedTotal,
		DeniedTotal:         h.DeniedTotal,
		ShadowedTotal:       h.ShadowedTotal,
		DegradedTotal:       h.DegradedTotal,
		Entries:             h.Entries,
		PendingCost:         h.PendingCost,
		DroppedCostTotal:    h.DroppedCost,
		ReplayErrorsTotal:   h.ReplayErrors,
		ReplayedAtMs:        h.ReplayedAtMs,
		SettingsErrorsTotal: h.SettingsErrors,
		SettingsAtMs:        h.SettingsAtMs,
		ResetAtMs:           h.ResetAtMs,
		SettingsProblem:     valid(h.SettingsProblem),
		BreakersOpen:        h.BreakersOpen,
		Relay:               nodeRelay(h.Relay),
	}
}

// nodeRelay leaves out shards and regions above the bounds of a heartbeat.
func nodeRelay(r *heartbeat.Relay) *controlv1.NodeRelay {
	if r == nil {
		return nil
	}
	answer := &controlv1.NodeRelay{
		Shards: clamp32(r.Shards), InStepAtMs: r.InStepAtMs, UnpublishedMs: r.UnpublishedMs,
		ErrorsTotal: r.Errors, RowsTotal: r.Rows, StoredTotal: r.Stored, HealedTotal: r.Healed, FencedTotal: r.Fenced,
	}
	for _, shard := range r.Held[:min(len(r.Held), heartbeat.ShardsMax)] {
		answer.Held = append(answer.Held, clamp32(shard))
	}
	if len(r.LagP99Ms) <= heartbeat.RegionsMax {
		answer.LagP99Ms = make(map[string]int64, len(r.LagP99Ms))
		for region, ms := range r.LagP99Ms {
			answer.LagP99Ms[valid(region)] = ms
		}
	}
	return answer
}

func clamp32(n int) int32 { return int32(min(max(n, 0), heartbeat.ShardsMax)) }

// valid replaces invalid UTF-8. Protobuf accepts only UTF-8, and one node with an invalid name must not hide the fleet.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func validAll(texts []string) (all []string) {
	for _, text := range texts {
		all = append(all, valid(text))
	}
	return all
}

// unixMs returns a time in ms, or 0 for the zero time.
func unixMs(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
