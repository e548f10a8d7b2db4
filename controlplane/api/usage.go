package api

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
)

// usageDefault is the number of namespaces in a response if the request has no limit.
const usageDefault = 10

// GetUsage leaves out namespaces of workspaces that the caller's token does not have.
func (s keyService) GetUsage(ctx context.Context,
	req *connect.Request[controlv1.GetUsageRequest]) (*connect.Response[controlv1.GetUsageResponse], error) {
	m := req.Msg
	q := limits.UsageQuery{Workspace: m.GetWorkspace(), Namespace: m.GetNamespace(), Region: m.GetRegion(),
		From: timeOf(m.GetFromMs()), Until: timeOf(m.GetUntilMs()), Limit: cmp.Or(int(m.GetLimit()), usageDefault),
		Visible: visible(ctx)}
	switch m.GetStep() {
	case controlv1.UsageStep_USAGE_STEP_UNSPECIFIED:
	case controlv1.UsageStep_USAGE_STEP_HOUR:
		q.Step = time.Hour
	case controlv1.UsageStep_USAGE_STEP_DAY:
		q.Step = 24 * time.Hour
	default:
		return nil, fmt.Errorf("%w: step is %d (USAGE_STEP_HOUR or USAGE_STEP_DAY)", controlplane.ErrInvalid, m.GetStep())
	}
	found, err := s.Usage(ctx, q)
	return answered(usageResponse(&found), err)
}

// timeOf returns the time of Unix ms, or the zero time for 0.
func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

func usageResponse(found *limits.Usage) *controlv1.GetUsageResponse {
	answer := &controlv1.GetUsageResponse{NowMs: unixMs(found.Now), StepMs: found.Step.Milliseconds(),
		Truncated: found.Truncated}
	for _, t := range found.Times {
		step := &controlv1.UsageTime{AtMs: unixMs(t.At), Known: t.Known}
		for _, region := range t.Missing {
			step.MissingRegions = append(step.MissingRegions, valid(region))
		}
		answer.Steps = append(answer.Steps, step)
	}
	for _, s := range found.Series {
		series := &controlv1.UsageSeries{Workspace: valid(s.Workspace), Namespace: valid(s.Namespace),
			Accepted: s.Sum.Accepted, Denied: s.Sum.Denied}
		for _, n := range s.Costs {
			series.AcceptedSteps = append(series.AcceptedSteps, n.Accepted)
			series.DeniedSteps = append(series.DeniedSteps, n.Denied)
		}
		answer.Series = append(answer.Series, series)
	}
	return answer
}
