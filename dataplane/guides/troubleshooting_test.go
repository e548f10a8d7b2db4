package guides

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
)

// why returns the explanation of the decision that a request would get now. It counts nothing.
func why(limiter *dataplane.Limiter, r dataplane.Request) (string, error) {
	x, err := limiter.Explain(r)
	if err != nil {
		return "", err
	}
	return x.String(), nil
}

// The explanation on the page is what a limiter returns.
func TestAnExplanationNamesTheLimitAndTheCounts(t *testing.T) {
	page, err := os.ReadFile("troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		limiter := alone(t)
		time.Sleep(18 * time.Second)
		r := dataplane.Request{Workspace: "acme", Namespace: "api", Identifier: "user_42", Limit: 10, Duration: time.Minute}
		for range 10 {
			if !limiter.Allow(t.Context(), r).Allowed {
				t.Fatal("denied")
			}
		}
		got, err := why(limiter, r)
		if err != nil {
			t.Fatal(err)
		}
		if shown := strings.Join(strings.Fields(string(page)), " "); !strings.Contains(shown, got) {
			t.Errorf("the page does not show\n%s", got)
		}
	})
}
