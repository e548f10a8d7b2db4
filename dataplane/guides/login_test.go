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

var errWrongPassword = errors.New("the password is wrong")

// signIn tries a password. Each account has ten tries in a quarter of an hour, and five from the same address. Each
// address has a hundred tries for all accounts.
func signIn(ctx context.Context, limiter *dataplane.Limiter, account, address string, right func() bool) error {
	tries := []dataplane.Request{
		{Workspace: "acme", Namespace: "login-account", Identifier: account, Limit: 10, Duration: 15 * time.Minute},
		{Workspace: "acme", Namespace: "login-pair", Identifier: address + "|" + account, Limit: 5, Duration: 15 * time.Minute},
		{Workspace: "acme", Namespace: "login-address", Identifier: address, Limit: 100, Duration: 15 * time.Minute},
	}
	batch := limiter.AllowMany(ctx, tries)
	if batch.Err != nil {
		return batch.Err
	}
	if !batch.Allowed {
		var wait time.Duration
		for _, d := range batch.Decisions {
			wait = max(wait, d.RetryAfter)
		}
		return fmt.Errorf("too many tries: come back in %v", wait.Round(time.Second))
	}
	if !right() {
		return errWrongPassword
	}
	for _, try := range tries { // the password was right, so this was not a guess
		if _, err := limiter.Refund(try); err != nil {
			return err
		}
	}
	return nil
}

func TestGuessesOfPasswordsAreLimited(t *testing.T) {
	synctest.Test(t, testGuessesOfPasswordsAreLimited)
}

func testGuessesOfPasswordsAreLimited(t *testing.T) {
	limiter := alone(t)
	try := func(account, address string, right bool) error {
		return signIn(t.Context(), limiter, account, address, func() bool { return right })
	}
	wrong := func(account, address string, many int) (guesses int) {
		for range many {
			if errors.Is(try(account, address, false), errWrongPassword) {
				guesses++
			}
		}
		return guesses
	}
	for range 50 {
		if err := try("ann", "192.0.2.1", true); err != nil {
			t.Fatal(err)
		}
	}
	if got := wrong("ann", "203.0.113.7", 50); got != 5 {
		t.Errorf("%d guesses from one address", got)
	}
	if err := try("ann", "192.0.2.1", true); err != nil {
		t.Errorf("another address: %v", err)
	}
	if got := wrong("ann", "203.0.113.8", 50) + wrong("ann", "203.0.113.9", 50); got != 5 {
		t.Errorf("%d more guesses from elsewhere", got)
	}
	total := 0
	for i := range 50 {
		total += wrong(fmt.Sprint("account", i), "203.0.113.66", 50)
	}
	if total != 100 {
		t.Errorf("%d guesses of many accounts from one address", total)
	}
}
