package node

import (
	"context"
	"errors"
	"strings"

	"connectrpc.com/connect"

	"github.com/weirhq/weir/dataplane"
	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
	"github.com/weirhq/weir/shared/window"
)

// topKeysDefault is the number of keys in a response if the request has no limit.
const topKeysDefault = 20

func (s service) topKeys(ctx context.Context, m *weirv1.TopKeysRequest) (*weirv1.TopKeysResponse, error) {
	query, err := readTopKeys(m)
	if err != nil {
		return nil, err
	}
	found, err := s.limiter(ctx).TopKeys(query)
	switch {
	case errors.Is(err, dataplane.ErrTopBusy):
		return nil, tryLater(connect.CodeUnavailable, err)
	case err != nil:
		return nil, refusal(err)
	}
	answer := &weirv1.TopKeysResponse{AtMs: found.At.UnixMilli(), SinceMs: momentMs(found.Since),
		Keys: make([]*weirv1.TopKey, len(found.Keys))}
	for i, k := range found.Keys {
		answer.Keys[i] = writeTopKey(k)
	}
	return answer, nil
}

func writeTopKey(k dataplane.TopKey) *weirv1.TopKey {
	key := &weirv1.TopKey{
		Workspace: valid(k.Workspace), Namespace: valid(k.Namespace), Identifier: valid(k.Identifier),
		DurationMs: k.Duration.Milliseconds(), Count: k.Count, Regional: k.Regional, More: k.More,
	}
	if k.Limit >= 0 {
		key.Limit = &k.Limit
	}
	return key
}

// valid returns text that a message can carry: embedders' names may be any bytes.
func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

func readTopKeys(m *weirv1.TopKeysRequest) (dataplane.TopQuery, error) {
	var found violations
	for _, f := range []struct {
		name, value string
		bytesMax    int
	}{{"workspace", m.GetWorkspace(), window.WorkspaceBytesMax},
		{"namespace", m.GetNamespace(), window.NamespaceBytesMax}} {
		if len(f.value) > f.bytesMax {
			found.add(f.name, "is %d bytes long (at most %d bytes; empty for all)", len(f.value), f.bytesMax)
		}
	}
	query := dataplane.TopQuery{Workspace: m.GetWorkspace(), Namespace: m.GetNamespace(), Limit: int(m.GetLimit())}
	switch m.GetBy() {
	case weirv1.TopBy_TOP_BY_HOT:
		query.By = dataplane.TopHot
	case weirv1.TopBy_TOP_BY_DENIED:
		query.By = dataplane.TopDenied
	default:
		found.add("by", "is %d (TOP_BY_HOT or TOP_BY_DENIED)", m.GetBy())
	}
	switch {
	case query.Limit == 0:
		query.Limit = topKeysDefault
	case query.Limit < 0 || query.Limit > dataplane.TopKeysMax:
		found.add("limit", "is %d (1 to %d, 0 for %d)", m.GetLimit(), dataplane.TopKeysMax, topKeysDefault)
	}
	return query, found.err()
}
