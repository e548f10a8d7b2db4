package guides

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// allow counts a request for its user, the user's organisation and everybody, or for none of them. It returns the
// limit that denies the request, or "".
func allow(ctx context.Context, limiter *dataplane.Limiter, user, organisation string) (inTheWay string, err error) {
	names := []string{"user", "organisation", "everybody"}
	batch := limiter.AllowMany(ctx, []dataplane.Request{
		{Workspace: "acme", Namespace: "users", Identifier: user, Limit: 10, Duration: time.Second},
		{Workspace: "acme", Namespace: "organisations", Identifier: organisation, Limit: 1000, Duration: time.Minute},
		{Workspace: "acme", Namespace: "all", Identifier: "everybody", Limit: 50_000, Duration: time.Minute},
	})
	for i, d := range batch.Decisions {
		if !d.Allowed {
			return names[i], batch.Err
		}
	}
	return "", batch.Err
}

func TestSeveralLimitsCountTogether(t *testing.T) { synctest.Test(t, testSeveralLimitsCountTogether) }

func testSeveralLimitsCountTogether(t *testing.T) {
	limiter := alone(t)
	passed, inTheWay := map[string]int{}, map[string]int{}
	for i := range 2000 {
		user := []string{"ann", "bob"}[i%2]
		why, err := allow(t.Context(), limiter, user, "acme")
		if err != nil {
			t.Fatal(err)
		}
		if why == "" {
			passed[user]++
		}
		inTheWay[why]++
	}
	counted := limiter.Peek(t.Context(), dataplane.Request{Workspace: "acme", Namespace: "organisations", Identifier: "acme",
		Limit: 1000, Duration: time.Minute, ZeroCost: true})
	if passed["ann"] != 10 || passed["bob"] != 10 || inTheWay["user"] != 1980 || counted.Remaining != 980 {
		t.Errorf("%v passed, %v in the way, %d left of the organisation's", passed, inTheWay, counted.Remaining)
	}
}
