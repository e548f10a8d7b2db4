package guides

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/streamed"
)

// model answers a prompt, and returns how many tokens the answer took.
type model func(ctx context.Context, prompt string) (answer string, took int64, err error)

// complete answers a prompt, within 100,000 tokens a day for each user. The cost of an answer is known only at its end,
// so complete reserves the highest cost first, and settles the real cost. If this process dies meanwhile, the
// reservation ends after five minutes, and counts nothing.
func complete(ctx context.Context, limiter *dataplane.Limiter, user, prompt string, most int64, model model) (string, error) {
	held := limiter.Reserve(ctx, dataplane.ReserveRequest{
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
	// Settle also after an error, and if the caller has left, because the tokens were spent.
	if _, settled := limiter.Settle(context.WithoutCancel(ctx), held.ID, took); settled != nil {
		err = errors.Join(err, settled)
	}
	return answer, err
}

// relay streams an answer to its caller, within 50,000 tokens a minute of each organisation and 400,000 of the model.
// If the caller leaves or the model fails, the tokens that were streamed until then are counted.
func relay(ctx context.Context, streams *streamed.Streams, org string, most int64, tokens iter.Seq2[string, error],
	write func(token string) error) error {
	key := func(namespace, identifier string, limit int64) dataplane.Request {
		return dataplane.Request{Workspace: "acme", Namespace: namespace, Identifier: identifier, Limit: limit,
			Duration: time.Minute, Cost: most}
	}
	meter, reserved := streams.Begin(ctx, dataplane.ReserveRequest{
		Requests: []dataplane.Request{key("org-tokens", org, 50_000), key("model-tokens", "words", 400_000)},
		Returned: true, Holder: "completions",
	})
	if meter == nil {
		return fmt.Errorf("not now: %w", cmp.Or(reserved.Err, errors.New("too many tokens")))
	}
	defer meter.End()
	for token, err := range tokens {
		if err != nil {
			return err
		}
		meter.Spent(1)
		if err := write(token); err != nil {
			return err
		}
	}
	return nil
}

func TestTokensAreCountedAsTheyAreStreamed(t *testing.T) { synctest.Test(t, testTokensAreCounted) }

func testTokensAreCounted(t *testing.T) {
	limiter := alone(t)
	streams, err := streamed.New(streamed.Config{Reservations: limiter})
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the caller has left")
	answer := func(yield func(string, error) bool) {
		for yield("word", nil) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	ask := func(most int64, until int) error {
		n := 0
		return relay(t.Context(), streams, "acme", most, answer, func(string) error {
			if n++; n == until {
				return gone
			}
			return nil
		})
	}
	if err := ask(49_000, 300); !errors.Is(err, gone) {
		t.Error(err)
	}
	synctest.Wait()
	if err := ask(49_701, 1); err == nil || errors.Is(err, gone) {
		t.Errorf("300 are spent: %v", err)
	}
	if err := ask(49_700, 1); !errors.Is(err, gone) {
		t.Errorf("300 are spent: %v", err)
	}
	if err := streams.Stop(t.Context()); err != nil {
		t.Error(err)
	}
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
