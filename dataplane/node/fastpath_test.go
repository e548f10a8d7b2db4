package node

import (
	"context"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// seen is all that a caller and the limiter see of a call.
type seen struct {
	status  int
	header  string
	body    string
	request dataplane.Request
	calls   int
}

// bothWays sends the same call through the whole gate, and through a gate with only connect behind it. It returns the
// results of both, and whether the first used the fast path.
func bothWays(t testing.TB, decision dataplane.Decision, body string, headers ...string) (gate, connect seen, fast bool) {
	t.Helper()
	var now *seen
	h := prepare(t, scripted{allow: func(_ context.Context, r dataplane.Request) dataplane.Decision {
		now.request, now.calls = r, now.calls+1
		return decision
	}})
	next := h.gate.next
	h.gate.next = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fast = false
		next.ServeHTTP(w, r)
	})
	ask := func(s *seen) {
		now = s
		r := httptest.NewRequest(http.MethodPost, weirv1connect.RateLimitServiceLimitProcedure, strings.NewReader(body))
		r.Host = "localhost"
		r.Header.Set("Content-Type", "application/json")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		h.calls.server.Handler.ServeHTTP(w, r)
		s.status, s.body = w.Code, w.Body.String()
		var header strings.Builder
		_ = w.Header().WriteSubset(&header, map[string]bool{"Date": true})
		s.header = header.String()
	}
	fast = true
	ask(&gate)
	wasFast := fast
	h.gate.service.all = nil
	ask(&connect)
	return gate, connect, wasFast
}

const plainBody = `{"workspace":"acme","namespace":"api","identifier":"user_42","limit":10,"duration_ms":60000,"cost":4}`

// With and without the fast path, the caller and the limiter get the same: status, fields, bytes, and the limiter's
// calls.
func TestFastpathIsConnect(t *testing.T) {
	plain := dataplane.Decision{Allowed: true, Source: dataplane.SourceLocal, Limit: 10, Remaining: 6, Current: 4, ResetAt: time.UnixMilli(1_700_000_040_000)}
	for _, step := range []struct {
		body    string
		headers []string
		fast    bool
	}{
		{plainBody, nil, true},
		{" {\n\t\"workspace\" : \"a b\" , \"namespace\":\"~\",\"identifier\":\"'<>&\",\r\"durationMs\":\"60000\",\"limit\":\"0\"} \n", nil, true},
		{`{"cost":"0","limit":9007199254740991,"duration_ms":1000,"identifier":"i","namespace":"n","workspace":"w"}`, nil, true},
		{plainBody, []string{"Connect-Protocol-Version", "1", "Accept-Encoding", "gzip, br", "Accept", "*/*"}, true},
		{plainBody, []string{"Connect-Protocol-Version", "2"}, false},
		{plainBody, []string{"Connect-Timeout-Ms", "5000"}, false},
		{plainBody, []string{"Content-Encoding", "identity"}, false},
		{plainBody, []string{"Content-Encoding", "br"}, false},
		{plainBody, []string{"Content-Type", "application/json; charset=utf-8"}, false},
		{plainBody, []string{"Content-Type", "text/plain"}, false},
		{``, nil, false},
		{`{}`, nil, false},
		{`{} {}`, nil, false},
		{plainBody + plainBody, nil, false},
		{plainBody + strings.Repeat(" ", fastpathBytesMax), nil, false},
		{strings.Replace(plainBody, "user_42", `user\u005f42`, 1), nil, false},
		{strings.Replace(plainBody, "user_42", "üser", 1), nil, false},
		{strings.Replace(plainBody, "user_42", "\xff", 1), nil, false},
		{strings.Replace(plainBody, "user_42", "a\nb", 1), nil, false},
		{strings.Replace(plainBody, "user_42", "", 1), nil, false},
		{strings.Replace(plainBody, "user_42", strings.Repeat("i", 256), 1), nil, false},
		{strings.Replace(plainBody, "limit", "limt", 1), nil, false},
		{strings.Replace(plainBody, "limit", "Limit", 1), nil, false},
		{strings.Replace(plainBody, "cost", "limit", 1), nil, false},
		{strings.Replace(plainBody, "10", "1e1", 1), nil, false},
		{strings.Replace(plainBody, "10", "10.0", 1), nil, false},
		{strings.Replace(plainBody, "10", "010", 1), nil, false},
		{strings.Replace(plainBody, "10", "-1", 1), nil, false},
		{strings.Replace(plainBody, "10", `" 10"`, 1), nil, false},
		{strings.Replace(plainBody, "10", `"10`, 1), nil, false},
		{strings.Replace(plainBody, "10", "9223372036854775808", 1), nil, false},
		{strings.Replace(plainBody, "10", "9007199254740992", 1), nil, false},
		{strings.Replace(plainBody, "10", "null", 1), nil, false},
		{strings.Replace(plainBody, "60000", "999", 1), nil, false},
		{strings.Replace(plainBody, ",", ",,", 1), nil, false},
		{strings.Replace(plainBody, "}", ",}", 1), nil, false},
		{plainBody[:len(plainBody)-1], nil, false},
		{`[` + plainBody + `]`, nil, false},
	} {
		gate, connect, fast := bothWays(t, plain, step.body, step.headers...)
		if gate != connect {
			t.Errorf("%.120s %v\ngate    %+v\nconnect %+v", step.body, step.headers, gate, connect)
		}
		if fast != step.fast {
			t.Errorf("%.120s %v: fast is %v, want %v", step.body, step.headers, fast, step.fast)
		}
	}
	refused := dataplane.Decision{Err: dataplane.ErrInvalid}
	if gate, connect, _ := bothWays(t, refused, plainBody); gate.body != connect.body || gate.status != 400 {
		t.Errorf("refused by the limiter:\ngate    %+v\nconnect %+v", gate, connect)
	}
}

// A body that breaks off is the caller's fault, as it is by connect.
func TestFastpathBodyBreaksOff(t *testing.T) {
	h := prepare(t, scripted{})
	r := httptest.NewRequest(http.MethodPost, weirv1connect.RateLimitServiceLimitProcedure, strings.NewReader(plainBody[:20]))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	r.ContentLength = int64(len(plainBody))
	w := httptest.NewRecorder()
	h.calls.server.Handler.ServeHTTP(w, r)
	if w.Code != 400 {
		t.Errorf("status %d %s", w.Code, w.Body)
	}
}

// Any decision is written to the byte as connect's codec writes it.
func TestFastpathWritesAsTheCodecDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := dataplane.Decision{
			Allowed:    rapid.Bool().Draw(t, "allowed"),
			Shadowed:   rapid.Bool().Draw(t, "shadowed"),
			Source:     dataplane.Source(rapid.IntRange(0, 4).Draw(t, "source")),
			Limit:      rapid.Int64().Draw(t, "limit"),
			Remaining:  rapid.Int64().Draw(t, "remaining"),
			Current:    rapid.OneOf(rapid.Float64(), rapid.Float64Range(0, 1e9), rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1e-6, 1e-7, 1e20, 1e21, math.Inf(1), math.NaN(), -1})).Draw(t, "current"),
			ResetAt:    time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "reset")),
			RetryAfter: time.Duration(rapid.Int64Range(0, 1<<55).Draw(t, "retry")),
			Duration:   time.Duration(rapid.Int64().Draw(t, "duration")),
			Override:   rapid.OneOf(rapid.StringMatching(`[a-z*<>&_]{0,9}`), rapid.String()).Draw(t, "override"),

			CandidateDenied: rapid.Bool().Draw(t, "denied by the candidate"),
		}
		want, err := jsonCodec{}.Marshal(writeDecision(d))
		if got := appendFastpath(nil, d); err != nil || string(got) != string(want) {
			t.Fatalf("written as\n%s\nwant\n%s (%v)", got, want, err)
		}
	})
}

// With any bytes, both ways give the same result.
func FuzzFastpath(f *testing.F) {
	f.Add(plainBody)
	f.Add(minimal)
	f.Add(`{"limit":"1","limit":2}`)
	f.Add(`{"workspace":"\u0061"}`)
	words := maps.Keys(map[string]bool{`null`: true, `1e3`: true, `"007"`: true, `-0`: true, `00`: true, `"1"x`: true, `1 2`: true})
	for word := range words {
		f.Add(strings.Replace(plainBody, "10", word, 1))
	}
	f.Fuzz(func(t *testing.T, body string) {
		gate, connect, _ := bothWays(t, dataplane.Decision{Allowed: true, Limit: 1}, body)
		if gate != connect {
			t.Errorf("gate    %+v\nconnect %+v", gate, connect)
		}
	})
}
