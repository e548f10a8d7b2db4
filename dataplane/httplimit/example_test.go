package httplimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
)

// An API with two limits: a limit for each key, and a limit for each address. Both count, or neither.
func Example() {
	at := time.Date(2026, 11, 20, 12, 0, 30, 0, time.UTC)
	clock := func() time.Time { return at } // for an output that is always the same
	limiter, err := dataplane.New(dataplane.Config{Clock: clock})
	if err != nil {
		panic(err)
	}
	address, err := httplimit.ClientIP(httplimit.IPConfig{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		panic(err)
	}
	guard, err := httplimit.New(httplimit.Config{
		Limiter: limiter,
		Clock:   clock,
		Policies: []httplimit.Policy{
			{Name: "key", Workspace: "acme", Key: httplimit.Header("X-Api-Key"), Quota: httplimit.Quota{Limit: 2, Duration: time.Minute}},
			{Name: "address", Workspace: "acme", Key: address, Quota: httplimit.Quota{Limit: 1000, Duration: time.Hour}},
		},
	})
	if err != nil {
		panic(err)
	}
	api := guard.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "hello") }))

	for range 3 {
		request := httptest.NewRequest(http.MethodGet, "/", nil)
		request.RemoteAddr = "10.0.0.1:4711"
		request.Header.Set("X-Forwarded-For", "203.0.113.7")
		request.Header.Set("X-Api-Key", "k1")
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, request)
		fmt.Printf("%d %s Retry-After=%q\n", answer.Code, answer.Header().Get("RateLimit"), answer.Header().Get("Retry-After"))
		fmt.Print(answer.Body)
	}
	// Output:
	// 200 "key";r=1;t=30, "address";r=999;t=3570 Retry-After=""
	// hello
	// 200 "key";r=0;t=30, "address";r=998;t=3570 Retry-After=""
	// hello
	// 429 "key";r=0;t=31, "address";r=998 Retry-After="31"
	// {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota exceeded","status":429,"detail":"the quota is used up","violated-policies":["key"]}
}
