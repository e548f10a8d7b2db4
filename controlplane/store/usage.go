package store

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/controlplane/limits"
	"github.com/weirhq/weir/shared/gen/sql/controlplanedb"
	"github.com/weirhq/weir/shared/heartbeat"
)

var _ limits.UsageStore = (*Store)(nil)

func (s nodes) UsageReported(ctx context.Context, from, until time.Time, rows int) ([]limits.UsageHour, error) {
	found, err := s.queries.UsageReported(ctx, controlplanedb.UsageReportedParams{FromMs: unixMs(from),
		UntilMs: unixMs(until), Limit: int32(rows)})
	if err != nil {
		return nil, fmt.Errorf("read the hours with usage: %w", explain(err))
	}
	hours := make([]limits.UsageHour, len(found))
	for i, f := range found {
		hours[i] = limits.UsageHour{At: time.UnixMilli(int64(f.HourAt)), Region: string(f.Region)}
	}
	return hours, nil
}

func (s nodes) UsageOf(ctx context.Context, of heartbeat.UsageOf, from, until time.Time,
	rows int) ([]limits.UsageHour, error) {
	found, err := s.queries.UsageOf(ctx, controlplanedb.UsageOfParams{WorkspaceID: []byte(of.Workspace),
		Namespace: []byte(of.Namespace), FromMs: unixMs(from), UntilMs: unixMs(until), Limit: int32(rows)})
	if err != nil {
		return nil, fmt.Errorf("read the usage of a namespace: %w", explain(err))
	}
	hours := make([]limits.UsageHour, len(found))
	for i, f := range found {
		hours[i] = limits.UsageHour{At: time.UnixMilli(int64(f.HourAt)), Region: string(f.Region),
			UsageCost: heartbeat.UsageCost{Accepted: int64(f.Accepted), Denied: int64(f.Denied)}}
	}
	return hours, nil
}

func (s nodes) UsageTop(ctx context.Context, workspaces []string, region string, from, until time.Time,
	rows int) (top []limits.UsageSeries, err error) {
	var all int64
	if region == "" {
		all = 1
	}
	add := func(workspace, namespace []byte, accepted, denied int64) {
		top = append(top, limits.UsageSeries{
			UsageOf: heartbeat.UsageOf{Workspace: string(workspace), Namespace: string(namespace)},
			Sum:     heartbeat.UsageCost{Accepted: accepted, Denied: denied}})
	}
	if len(workspaces) == 0 {
		found, err := s.queries.UsageTop(ctx, controlplanedb.UsageTopParams{FromMs: unixMs(from), UntilMs: unixMs(until),
			AllRegions: all, Region: []byte(region), Limit: int32(rows)})
		for _, f := range found {
			add(f.WorkspaceID, f.Namespace, f.Accepted, f.Denied)
		}
		return top, failedUsage(err)
	}
	names := make([][]byte, len(workspaces))
	for i, name := range workspaces {
		names[i] = []byte(name)
	}
	found, err := s.queries.UsageTopOf(ctx, controlplanedb.UsageTopOfParams{Workspaces: names,
		FromMs: unixMs(from), UntilMs: unixMs(until), AllRegions: all, Region: []byte(region), Limit: int32(rows)})
	for _, f := range found {
		add(f.WorkspaceID, f.Namespace, f.Accepted, f.Denied)
	}
	return top, failedUsage(err)
}

func failedUsage(err error) error {
	if err != nil {
		return fmt.Errorf("read the usage of namespaces: %w", explain(err))
	}
	return nil
}
