package node

import (
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirhq/weir/shared/gen/proto/weir/v1"
)

// Explain returns each term on every protocol, and changes nothing: the third request of two still passes after any
// number of Explain calls.
func TestExplain(t *testing.T) {
	h := start(t, newLimiter(t, nil))
	for _, door := range doors {
		client := door.open(t, h)
		explain := func() *weirv1.ExplainResponse {
			t.Helper()
			answer, err := client.Explain(t.Context(), connect.NewRequest(&weirv1.ExplainRequest{
				Workspace: "acme", Namespace: "api", Identifier: door.name, Limit: 2, DurationMs: (24 * time.Hour).Milliseconds(),
			}))
			if err != nil {
				t.Fatalf("%s: %v", door.name, err)
			}
			return answer.Msg
		}
		for range 3 {
			if x := explain(); x.GetKnown() || !x.GetDecision().GetAllowed() || !strings.Contains(x.GetSummary(), "does not hold the key") {
				t.Errorf("%s: before the first request: %v", door.name, x)
			}
		}
		for range 2 {
			if r, err := ask(t.Context(), client, door.name, 2); err != nil || !r.GetAllowed() {
				t.Errorf("%s: %v %v", door.name, r, err)
			}
		}
		x := explain()
		if !x.GetKnown() || x.GetDecision().GetAllowed() || x.GetCurrent().GetRegional() != 2 || x.GetMode() != "exact" || x.GetWeight() <= 0 || x.GetOutage() != "local" || x.GetNodeShare() != "wait" || x.GetWindow() != "cells" {
			t.Errorf("%s: %v", door.name, x)
		}
		if _, err := client.Explain(t.Context(), connect.NewRequest(&weirv1.ExplainRequest{})); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: without a request: %v", door.name, err)
		}
	}
}
