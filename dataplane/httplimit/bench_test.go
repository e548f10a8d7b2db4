package httplimit_test

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
)

// discard is a ResponseWriter that discards everything.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// costs are requests through a guard with one or two policies, with the allocations that each may make: both values and
// the slice that holds them, and the text of an address.
var costs = []struct {
	name     string
	policies int
	quiet    bool
	allocs   float64
}{
	{"quiet", 1, true, 0},
	{"header", 1, false, 2},
	{"header and address", 2, false, 3},
}

func passing(tb testing.TB, policies int, quiet bool) func() {
	tb.Helper()
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		tb.Fatal(err)
	}
	address, err := httplimit.ClientIP(httplimit.IPConfig{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}})
	if err != nil {
		tb.Fatal(err)
	}
	all := []httplimit.Policy{policy("key", 1<<50, time.Minute), policy("address", 1<<50, time.Hour)}
	all[1].Key = address
	guard, err := httplimit.New(httplimit.Config{Limiter: limiter, Quiet: quiet, Policies: all[:policies]})
	if err != nil {
		tb.Fatal(err)
	}
	handler := guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodGet, "http://127.0.0.1/", nil)
	if err != nil {
		tb.Fatal(err)
	}
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Api-Key", "alice")
	r.Header.Set("X-Forwarded-For", "198.51.100.1, 192.0.2.1")
	w := discard{make(http.Header)}
	return func() { handler.ServeHTTP(w, r) }
}

func BenchmarkHandler(b *testing.B) {
	for _, c := range costs {
		b.Run(c.name, func(b *testing.B) {
			serve := passing(b, c.policies, c.quiet)
			b.ReportAllocs()
			for b.Loop() {
				serve()
			}
		})
	}
}
