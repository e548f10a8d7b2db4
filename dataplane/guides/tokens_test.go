package guides

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// model answers a prompt, and says how many tokens that took.
type model func(ctx context.Context, prompt string) (answer string, took int64, err error)

// complete answers a prompt, within 100,000 tokens a day for each user. What an answer takes is known once it is
// there: the most that it may take is reserved, and what it took is settled. If this process dies meanwhile, the
// reservation ends after five minutes, and counts nothing.
func complete(ctx context.Context, limiter *dataplane.Limiter, user, prompt string, most int64, model model) (string, error) {
	held := limiter.ReserveAll(ctx, dataplane.ReserveRequest{
		Requests: []dataplane.Request{{
			Workspace: "acme", Namespace: "tokens", Identifier: user,
			Limit: 100_000, Duration: 24 * time.Hour, Cost: most,
		}},
		TTL: 5 * time.Minute, Returned: true, Holder: "completions",
	})
	if held.Err != nil {
		return "", held.Err
	}
	if !held.Allowed {
		return "", fmt.Errorf("no tokens left: come back in %v", held.Decisions[0].RetryAfter.Round(time.Second))
	}
	answer, took, err := model(ctx, prompt)
	// Also after an error, and when the caller has left: what was spent is spent.
	if _, settled := limiter.Settle(context.WithoutCancel(ctx), held.ID, took); settled != nil {
		err = errors.Join(err, settled)
	}
	return answer, err
}

func TestTokensAreSettled(t *testing.T) { synctest.Test(t, testTokensAreSettled) }

func testTokensAreSettled(t *testing.T) {
	limiter := alone(t)
	ask := func(most, took int64, fails error) error {
		_, err := complete(t.Context(), limiter, "ann", "?", most, func(context.Context, string) (string, int64, error) {
			return "!", took, fails
		})
		return err
	}
	left := func() int64 {
		return limiter.Peek(t.Context(), dataplane.Request{Workspace: "acme", Namespace: "tokens", Identifier: "ann",
			Limit: 100_000, Duration: 24 * time.Hour, ZeroCost: true}).Remaining
	}
	if err := ask(60_000, 2_500, nil); err != nil || left() != 97_500 {
		t.Errorf("%v, %d left", err, left())
	}
	if err := ask(1_000, 3_000, nil); err != nil || left() != 94_500 { // more than was reserved
		t.Errorf("%v, %d left", err, left())
	}
	broken := errors.New("broken")
	if err := ask(90_000, 500, broken); !errors.Is(err, broken) || left() != 94_000 {
		t.Errorf("%v, %d left", err, left())
	}
	if err := ask(95_000, 1, nil); err == nil || left() != 94_000 {
		t.Errorf("%v, %d left", err, left())
	}
}
