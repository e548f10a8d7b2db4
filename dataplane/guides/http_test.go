package guides

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
)

// protect holds each request to the limit of its address and, if it has an API key, to the limit of that key.
func protect(limiter *dataplane.Limiter, api http.Handler) (http.Handler, error) {
	address, err := httplimit.ClientIP(httplimit.IPConfig{
		Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, // your proxies
	})
	if err != nil {
		return nil, err
	}
	guard, err := httplimit.New(httplimit.Config{
		Limiter: limiter,
		Policies: []httplimit.Policy{{
			Name: "address", Workspace: "acme", Key: address,
			Quota: httplimit.Quota{Limit: 600, Duration: time.Minute},
		}, {
			Name: "key", Workspace: "acme", Key: httplimit.Header("X-Api-Key"), Open: true,
			Quota: httplimit.Quota{Limit: 100, Duration: time.Minute},
		}},
	})
	if err != nil {
		return nil, err
	}
	return guard.Handler(api), nil
}

func TestAnAPIIsLimitedByAddressAndKey(t *testing.T) {
	synctest.Test(t, testAnAPIIsLimitedByAddressAndKey)
}

func testAnAPIIsLimitedByAddressAndKey(t *testing.T) {
	api, err := protect(alone(t), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(address, key string) int {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "10.0.0.1:4711"
		r.Header.Set("X-Forwarded-For", "198.51.100.1, "+address) // the first is the caller's claim
		if key != "" {
			r.Header.Set("X-Api-Key", key)
		}
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, r)
		if answer.Code == http.StatusTooManyRequests && answer.Header().Get("Retry-After") == "" {
			t.Errorf("no Retry-After: %v", answer.Header())
		}
		return answer.Code
	}
	passed := map[string]int{}
	for range 200 {
		if ask("203.0.113.7", "k1") == http.StatusOK {
			passed["k1"]++
		}
	}
	for range 600 {
		if ask("203.0.113.7", "") == http.StatusOK {
			passed["no key"]++
		}
	}
	if ask("203.0.113.8", "k2") == http.StatusOK {
		passed["another"]++
	}
	if passed["k1"] != 100 || passed["no key"] != 500 || passed["another"] != 1 {
		t.Errorf("%v", passed)
	}
}
