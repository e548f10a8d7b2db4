package httplimit

import (
	"context"
	"encoding/json"
	"net/http"
)

// Handler applies the Guard's policies to requests before it calls next.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.admit(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// admit reports whether the request may go on. Otherwise it answers the request.
func (g *Guard) admit(w http.ResponseWriter, r *http.Request) bool {
	o, ok := g.outcomes.Get().(*Outcome)
	if !ok {
		o = new(Outcome) // the pool holds nothing else
	}
	g.check(r.Context(), httpCall{r}, o)
	o.WriteFields(w.Header())
	allowed := o.Allowed
	switch {
	case allowed:
	case o.Fault == FaultNone && g.config.Denied != nil:
		g.config.Denied(w, r, o)
		return false // which may have kept o
	default:
		o.WriteProblem(w)
	}
	g.outcomes.Put(o)
	return allowed
}

// httpCall is a request of net/http as a Call. It is a single pointer, so that converting it to a Call allocates
// nothing.
type httpCall struct{ r *http.Request }

func (c httpCall) Context() context.Context { return c.r.Context() }
func (c httpCall) Header() http.Header      { return c.r.Header }
func (c httpCall) RemoteAddr() string       { return c.r.RemoteAddr }
func (c httpCall) Path() string             { return c.r.URL.Path }

// Request returns the HTTP request that a Call is, for key, quota and cost functions that want more than its headers;
// nil if the call came by another protocol.
func Request(c Call) *http.Request {
	if call, ok := c.(httpCall); ok {
		return call.r
	}
	return nil
}

// Problem types of the registry that draft-ietf-httpapi-ratelimit-headers-11 adds to.
const (
	TypeQuotaExceeded            = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	TypeTemporaryReducedCapacity = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
)

// Problem is the body of an answer to a call that did not pass (RFC 9457).
type Problem struct {
	Type             string   `json:"type"`
	Title            string   `json:"title"`
	Status           int      `json:"status"`
	Detail           string   `json:"detail,omitempty"`
	ViolatedPolicies []string `json:"violated-policies,omitempty"`
}

// Problem describes why the call did not pass: 429 for a quota, 503 if the limiter cannot decide, 400 without a key,
// 500 for a faulty policy.
func (o *Outcome) Problem() Problem {
	p := Problem{Type: "about:blank", Detail: o.Explain()}
	switch {
	case o.Fault == FaultNoKey:
		p.Status = http.StatusBadRequest
	case o.Fault == FaultBounds:
		p.Status = http.StatusInternalServerError
	case o.Unknown():
		p.Status, p.Type = http.StatusServiceUnavailable, TypeTemporaryReducedCapacity
	default:
		p.Status, p.Type = http.StatusTooManyRequests, TypeQuotaExceeded
		p.ViolatedPolicies = o.Violated()
	}
	if p.Title = http.StatusText(p.Status); p.Type == TypeQuotaExceeded {
		p.Title = "Quota exceeded"
	}
	return p
}

// Violated returns the names of the policies that denied the call.
func (o *Outcome) Violated() (names []string) {
	for i := range o.Standings {
		if s := &o.Standings[i]; s.denied() {
			names = append(names, s.Policy.Name)
		}
	}
	return names
}

// WriteProblem answers a call that did not pass. The answer has the caller's standing, so shared caches must not store
// it.
func (o *Outcome) WriteProblem(w http.ResponseWriter) {
	writeProblem(w, o.Problem())
}

// writeProblem answers with a problem, by default under the name of its status.
func writeProblem(w http.ResponseWriter, p Problem) {
	if p.Title == "" {
		p.Title = http.StatusText(p.Status)
	}
	h := w.Header()
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // the caller may have gone
}
