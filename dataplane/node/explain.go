package node

import (
	"context"
	"time"

	"github.com/weirhq/weir/dataplane"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

func (s service) explain(ctx context.Context, m *weirv1.ExplainRequest) (*weirv1.ExplainResponse, error) {
	request, err := readLimit(m)
	if err != nil {
		return nil, err
	}
	x, err := s.limiter(ctx).Explain(request)
	if err != nil {
		return nil, refusal(err)
	}
	return writeExplanation(&x), nil
}

func writeExplanation(x *dataplane.Explanation) *weirv1.ExplainResponse {
	return &weirv1.ExplainResponse{
		Summary: x.String(), Decision: writeDecision(x.Decision), AtMs: x.At.UnixMilli(),
		DurationMs: x.Duration.Milliseconds(),
		Mode:       x.Mode, Overridden: x.Overridden, Shadow: x.Shadow, Outage: x.Outage, NodeShare: x.NodeShare,
		ResetGeneration: x.Reset, ResetAtMs: momentMs(x.ResetAt), Known: x.Known,
		Current: writeCell(&x.Current), Previous: writeCell(&x.Previous), Weight: x.Weight,
		RefreshedAtMs: momentMs(x.RefreshedAt), StrictUntilMs: momentMs(x.StrictUntil), AsksOrigin: x.AsksOrigin,
		RestsForMs: x.RestsFor.Milliseconds(),
		Asks:       x.Asks, Sends: x.Sends, RegionNodes: x.Nodes,
		TuningVersion: x.TuningVersion, SettingsAtMs: momentMs(x.SettingsAt),
		Candidate: x.Candidate, Window: x.Window, Gone: x.Gone,
	}
}

func writeCell(c *dataplane.ExplainedCell) *weirv1.ExplainedCell {
	return &weirv1.ExplainedCell{
		Sequence: c.Sequence, StartMs: c.Start.UnixMilli(), Generation: c.Generation, Held: c.Held,
		Regional: c.Regional, Confirmed: c.Confirmed, Unsent: c.Unsent, Foreign: c.Foreign, Credit: c.Credit,
		Counts: c.Counts, Restores: c.Restores,
	}
}

func momentMs(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}
