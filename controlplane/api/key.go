package api

import (
	"cmp"
	"context"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/controlplane/limits"
	controlv1 "github.com/weirhq/weir/shared/gen/proto/weir/control/v1"
	"github.com/weirhq/weir/shared/window"
)

func (s keyService) GetKey(ctx context.Context,
	req *connect.Request[controlv1.GetKeyRequest]) (*connect.Response[controlv1.GetKeyResponse], error) {
	m := req.Msg
	q := limits.KeyQuery{
		Workspace: m.GetWorkspace(), Namespace: m.GetNamespace(), Identifier: m.GetIdentifier(), Limit: m.GetLimit(),
		Cost: cmp.Or(m.GetCost(), 1),
	}
	found, err := s.Key(ctx, q)
	if err != nil {
		return nil, err
	}
	problem := ""
	if m.GetJudge() {
		reported, err := s.Config.TopKeys(ctx, limits.TopQuery{Workspace: q.Workspace, Namespace: q.Namespace,
			Identifier: q.Identifier, Limit: limits.TopKeysMax, Visible: visible(ctx)})
		found.Judge(q, reported)
		if err != nil {
			s.Log.WarnContext(ctx, "the reports of nodes could not be read for a key", "error", err)
			problem = valid(err.Error())
		} else if reported.Truncated || reported.Unreadable > 0 {
			problem = "only a part of the nodes' reports could be read: the key can have more cost than they have"
		}
	}
	answer := keyResponse(found)
	answer.JudgeProblem = problem
	return connect.NewResponse(answer), nil
}

// keysDefault is the number of keys on a page if the request has no limit.
const keysDefault = 50

func (s keyService) ListKeys(ctx context.Context,
	req *connect.Request[controlv1.ListKeysRequest]) (*connect.Response[controlv1.ListKeysResponse], error) {
	m := req.Msg
	page, err := s.Keys(ctx, limits.KeysQuery{Workspace: m.GetWorkspace(), Namespace: m.GetNamespace(),
		Prefix: m.GetPrefix(), After: string(m.GetAfter()), Limit: cmp.Or(int(m.GetLimit()), keysDefault)})
	answer := &controlv1.ListKeysResponse{NowMs: unixMs(page.Now), Next: []byte(page.Next)}
	if page.ReportsErr != nil {
		s.Log.WarnContext(ctx, "the reports of nodes could not be read for a list of keys", "error", page.ReportsErr)
		answer.LimitsProblem = valid(page.ReportsErr.Error())
	}
	for i := range page.Keys {
		answer.Keys = append(answer.Keys, listedKey(&page.Keys[i], answer.GetNowMs()))
	}
	return answered(answer, err)
}

func listedKey(k *limits.KeyListed, nowMs int64) *controlv1.ListedKey {
	listed := &controlv1.ListedKey{Identifier: valid(k.Identifier), Truncated: k.Truncated, Shadow: k.Shadow}
	if k.Override != nil {
		listed.Override = valid(k.Override.Pattern)
	}
	if k.Reset != nil {
		listed.ResetAtMs = unixMs(k.Reset.SetAt)
	}
	listed.Windows = each(k.Windows, func(w limits.KeyWindow) *controlv1.ListedWindow {
		window := &controlv1.ListedWindow{Mode: w.Mode.String(), DurationMs: w.DurationMs, Count: w.Effective,
			Limit: w.Limit, LimitReported: w.LimitReported}
		if at, ok := k.FreeAt(&w, nowMs); ok {
			window.FreeAtMs = &at
		}
		return window
	})
	return listed
}

func keyResponse(r limits.KeyReport) *controlv1.GetKeyResponse {
	answer := &controlv1.GetKeyResponse{NowMs: unixMs(r.Now), Truncated: r.Truncated, Shadow: r.Shadow}
	if r.Override != nil {
		answer.Override, answer.OverrideExact = overrideAnswer(*r.Override), window.IsExact(r.Override.Pattern)
	}
	if r.Reset != nil {
		answer.Reset_ = resetAnswer(*r.Reset)
	}
	answer.Windows = each(r.Windows, func(w limits.KeyWindow) *controlv1.KeyWindow {
		return &controlv1.KeyWindow{
			Mode: w.Mode.String(), DurationMs: w.DurationMs, Current: keyCell(w.Current), Previous: keyCell(w.Previous),
			Weight: w.Weight, Effective: w.Effective, Limit: w.Limit, LimitReported: w.LimitReported,
			Reported: w.Reported, Verdict: verdicts[w.Verdict],
		}
	})
	return answer
}

var verdicts = map[limits.Verdict]controlv1.KeyVerdict{
	limits.Unknown:     controlv1.KeyVerdict_KEY_VERDICT_UNKNOWN,
	limits.Passes:      controlv1.KeyVerdict_KEY_VERDICT_PASSES,
	limits.Denied:      controlv1.KeyVerdict_KEY_VERDICT_DENIED,
	limits.NeverPasses: controlv1.KeyVerdict_KEY_VERDICT_NEVER_PASSES,
}

func keyCell(c limits.KeyCell) *controlv1.KeyCell {
	cell := &controlv1.KeyCell{StartMs: c.StartMs, Generation: c.Generation, Count: c.Count}
	for _, p := range c.Parts {
		cell.Parts = append(cell.Parts, &controlv1.KeyPart{Region: valid(p.Region), Count: p.Count,
			UpdatedAtMs: unixMs(p.UpdatedAt)})
	}
	return cell
}
