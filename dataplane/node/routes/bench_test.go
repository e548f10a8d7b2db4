package routes_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/weirhq/weir/dataplane"
)

// BenchmarkRoutes measures reading and writing around a decision of the real limiter.
func BenchmarkRoutes(b *testing.B) {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		b.Fatal(err)
	}
	s := newService(limiter, nil)
	check := `{"namespace":"email.outbound","identifier":"user_42","limit":1000000000,"duration":60000,"cost":1}`
	for _, c := range []struct{ name, route, body string }{
		{"limit", "limit", check},
		{"multiLimit of 10", "multiLimit", "[" + strings.Repeat(check+",", 9) + check + "]"},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/v2/ratelimit."+c.route, nil)
			r.Header.Set("Content-Type", "application/json")
			b.ReportAllocs()
			for b.Loop() {
				r.Body = body{strings.NewReader(c.body)}
				s.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}

type body struct{ *strings.Reader }

func (body) Close() error { return nil }
