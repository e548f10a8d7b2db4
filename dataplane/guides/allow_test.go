package guides

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
	"github.com/weirhq/weir/dataplane/settingsfile"
	"github.com/weirhq/weir/shared/settings"
)

// sparing limits all callers except partners.
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

// "If you count callers by their addresses, an override can name a network", with the page's overrides and callers.
func TestNetworksOfCallers(t *testing.T) {
	override := func(pattern string, limit int64) settings.Override {
		return settings.Override{Workspace: "acme", Namespace: "address", Pattern: pattern, Limit: limit}
	}
	source, err := settingsfile.New(settings.Document{Overrides: []settings.Override{
		override("203.0.113.0/24", 0), override("203.0.113.7/32", 100), override("2001:db8::/32", 1000),
	}})
	if err != nil {
		t.Fatal(err)
	}
	limiter, err := dataplane.New(dataplane.Config{Region: "eu", Settings: source})
	if err != nil {
		t.Fatal(err)
	}
	if err := limiter.RefreshSettings(t.Context()); err != nil {
		t.Fatal(err)
	}
	address, err := httplimit.ClientIP(httplimit.IPConfig{})
	if err != nil {
		t.Fatal(err)
	}
	guard, err := httplimit.New(httplimit.Config{Limiter: limiter, Policies: []httplimit.Policy{{
		Name: "address", Workspace: "acme", Key: address, Quota: httplimit.Quota{Limit: 10, Duration: time.Minute},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	api := guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for remote, limit := range map[string]string{
		"203.0.113.9:1": "", "203.0.113.7:1": "q=100;", "[::ffff:203.0.113.7]:1": "q=100;", "[2001:db8:1:2::3]:1": "q=1000;", "[2001:db9::1]:1": "q=10;", "198.51.100.1:1": "q=10;",
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = remote
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, r)
		if policy := answer.Header().Get("RateLimit-Policy"); (answer.Code == http.StatusOK) != (limit != "") || !strings.Contains(policy, limit) {
			t.Errorf("%s: %d, %q, want %q", remote, answer.Code, policy, limit)
		}
	}
}
