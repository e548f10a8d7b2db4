package guides

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
)

// sparing limits everybody but partners.
func sparing(limiter *dataplane.Limiter, partners map[string]bool) (*httplimit.Guard, error) {
	everybody := httplimit.Quota{Limit: 100, Duration: time.Minute}
	return httplimit.New(httplimit.Config{Limiter: limiter, Policies: []httplimit.Policy{{
		Name: "key", Workspace: "acme", Key: httplimit.Header("X-Api-Key"),
		QuotaFor: func(_ httplimit.Call, key string) (httplimit.Quota, bool) {
			return everybody, !partners[key]
		},
	}}})
}

func TestPartnersAreNotLimited(t *testing.T) { synctest.Test(t, testPartnersAreNotLimited) }

func testPartnersAreNotLimited(t *testing.T) {
	guard, err := sparing(alone(t), map[string]bool{"partner": true})
	if err != nil {
		t.Fatal(err)
	}
	api := guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	passed := map[string]int{}
	for range 200 {
		for _, key := range []string{"partner", "another"} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-Api-Key", key)
			answer := httptest.NewRecorder()
			if api.ServeHTTP(answer, r); answer.Code == http.StatusOK {
				passed[key]++
			}
		}
	}
	if passed["partner"] != 200 || passed["another"] != 100 {
		t.Errorf("%v", passed)
	}
}
