package guides

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// rolling allows 1,000 in any 30 days.
func rolling(ctx context.Context, limiter *dataplane.Limiter, user string) dataplane.Decision {
	return limiter.Allow(ctx, dataplane.Request{
		Workspace: "acme", Namespace: "plan", Identifier: user, Limit: 1000, Duration: 30 * 24 * time.Hour,
	})
}

// monthly allows 1,000 in a calendar month. Each month is another key, so its count starts at 0.
func monthly(ctx context.Context, limiter *dataplane.Limiter, user string) dataplane.Decision {
	return limiter.Allow(ctx, dataplane.Request{
		Workspace: "acme", Namespace: "plan", Identifier: user + "/" + time.Now().UTC().Format("2006-01"),
		Limit: 1000, Duration: 366 * 24 * time.Hour,
	})
}

func TestAMonthBeginsAtNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // it begins with the year 2000, and the window's cell ends on its 24th day
		limiter := alone(t)
		use := func() (passed int) {
			for range 1500 {
				if monthly(t.Context(), limiter, "ann").Allowed {
					passed++
				}
			}
			return passed
		}
		sleepUntil := func(at time.Time) { time.Sleep(time.Until(at)) }
		first := time.Now().UTC()
		cell := func(at time.Time) int64 { return at.Unix() / (366 * 24 * 60 * 60) }
		if first.Day() != 1 || cell(first) == cell(first.AddDate(0, 0, 30)) {
			t.Fatalf("%v: nothing is proved", first)
		}
		began := use()
		sleepUntil(first.AddDate(0, 1, 0).Add(-time.Second))
		ended := use()
		if most := 1000 * 31 / 366; began != 1000 || ended == 0 || ended > most {
			t.Errorf("%d passed as the month began, and %d as it ended, want %d at most", began, ended, most)
		}
		for month := 1; month < 12; month++ {
			sleepUntil(first.AddDate(0, month, 0))
			began := use()
			sleepUntil(first.AddDate(0, month+1, 0).Add(-time.Second))
			if ended := use(); began != 1000 || ended != 0 {
				t.Errorf("month %d: %d, and then %d", month+1, began, ended)
			}
		}
	})
}

func TestARollingQuotaReturnsGradually(t *testing.T) {
	synctest.Test(t, testARollingQuotaReturnsGradually)
}

func testARollingQuotaReturnsGradually(t *testing.T) {
	limiter := alone(t)
	for i := range 1000 {
		if !rolling(t.Context(), limiter, "ann").Allowed {
			t.Fatalf("request %d is denied", i)
		}
	}
	d := rolling(t.Context(), limiter, "ann")
	if d.Allowed || d.RetryAfter <= 0 || d.RetryAfter > 31*24*time.Hour {
		t.Errorf("%+v", d)
	}
}
