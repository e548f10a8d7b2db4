package gubernator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/gubernator-io/gubernator/v2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

func server(t *testing.T) *Server {
	t.Helper()
	l, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(l, "acme")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// client returns gubernator's own client, unchanged.
func client(t *testing.T) v1.V1Client {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	v1.RegisterV1Server(g, server(t))
	go func() { _ = g.Serve(listener) }()
	t.Cleanup(g.Stop)
	c, err := v1.DialV1Server(listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func hit(key string, hits int64, behavior ...v1.Behavior) *v1.RateLimitReq {
	r := &v1.RateLimitReq{Name: "requests_per_day", UniqueKey: key, Hits: hits, Limit: 10, Duration: 86_400_000}
	for _, b := range behavior {
		v1.SetBehavior(&r.Behavior, b, true)
	}
	return r
}

func ask(t *testing.T, c v1.V1Client, requests ...*v1.RateLimitReq) []*v1.RateLimitResp {
	t.Helper()
	out, err := c.GetRateLimits(t.Context(), &v1.GetRateLimitsReq{Requests: requests})
	if err != nil || len(out.GetResponses()) != len(requests) {
		t.Fatalf("%v, %v", out, err)
	}
	return out.GetResponses()
}

func want(t *testing.T, r *v1.RateLimitResp, is v1.Status, remaining int64) {
	t.Helper()
	if r.GetError() != "" || r.GetStatus() != is || r.GetRemaining() != remaining || r.GetLimit() != 10 {
		t.Errorf("%v, want %v with %d left", r, is, remaining)
	}
	if wait := time.Until(time.UnixMilli(r.GetResetTime())); wait <= 0 || wait > 48*time.Hour {
		t.Errorf("it resets in %v", wait)
	}
}

func TestItsClient(t *testing.T) {
	c := client(t)
	for name, behavior := range map[string]v1.Behavior{"plain": v1.Behavior_BATCHING, "of all": v1.Behavior_GLOBAL,
		"at once": v1.Behavior_NO_BATCHING, "of regions": v1.Behavior_MULTI_REGION} {
		for left := int64(8); left >= 0; left -= 2 {
			want(t, ask(t, c, hit(name, 2, behavior))[0], v1.Status_UNDER_LIMIT, left)
		}
		want(t, ask(t, c, hit(name, 1, behavior))[0], v1.Status_OVER_LIMIT, 0)
	}
	leaky := hit("leaky", 10)
	leaky.Algorithm, leaky.Burst = v1.Algorithm_LEAKY_BUCKET, 10
	want(t, ask(t, c, leaky)[0], v1.Status_UNDER_LIMIT, 0)
	want(t, ask(t, c, leaky)[0], v1.Status_OVER_LIMIT, 0)
}

// Each request of a call is decided by itself: a repeated key counts twice, and a request over its limit does not
// affect the others.
func TestRequestsOfACall(t *testing.T) {
	all := ask(t, client(t), hit("a", 6), hit("a", 6), hit("b", 1), hit("a", 4))
	want(t, all[0], v1.Status_UNDER_LIMIT, 4)
	want(t, all[1], v1.Status_OVER_LIMIT, 4)
	want(t, all[2], v1.Status_UNDER_LIMIT, 9)
	want(t, all[3], v1.Status_UNDER_LIMIT, 0)
}

func TestHitsOfNoneAndLess(t *testing.T) {
	c := client(t)
	want(t, ask(t, c, hit("a", 0))[0], v1.Status_UNDER_LIMIT, 10)
	want(t, ask(t, c, hit("a", 10))[0], v1.Status_UNDER_LIMIT, 0)
	want(t, ask(t, c, hit("a", 0))[0], v1.Status_UNDER_LIMIT, 0)
	want(t, ask(t, c, hit("a", -3))[0], v1.Status_UNDER_LIMIT, 3)
	want(t, ask(t, c, hit("a", 4, v1.Behavior_DRAIN_OVER_LIMIT))[0], v1.Status_OVER_LIMIT, 0)
	want(t, ask(t, c, hit("a", 0))[0], v1.Status_UNDER_LIMIT, 0)
}

// Hits of 0 return OVER_LIMIT once hits were denied with nothing left, until some hits pass again. With a leaky bucket
// they never do.
func TestHitsOfNoneAfterADenial(t *testing.T) {
	c := client(t)
	for range 10 {
		ask(t, c, hit("a", 1))
	}
	want(t, ask(t, c, hit("a", 0))[0], v1.Status_UNDER_LIMIT, 0)
	want(t, ask(t, c, hit("a", 1))[0], v1.Status_OVER_LIMIT, 0)
	for range 2 {
		want(t, ask(t, c, hit("a", 0))[0], v1.Status_OVER_LIMIT, 0)
	}
	want(t, ask(t, c, hit("b", 0))[0], v1.Status_UNDER_LIMIT, 10)
	want(t, ask(t, c, hit("a", -2))[0], v1.Status_UNDER_LIMIT, 2)
	want(t, ask(t, c, hit("a", 0))[0], v1.Status_UNDER_LIMIT, 2)
	want(t, ask(t, c, hit("a", 2))[0], v1.Status_UNDER_LIMIT, 0)
	want(t, ask(t, c, hit("a", 0))[0], v1.Status_UNDER_LIMIT, 0)
	leaky := func(hits int64) *v1.RateLimitReq {
		r := hit("leaky", hits)
		r.Algorithm = v1.Algorithm_LEAKY_BUCKET
		return r
	}
	ask(t, c, leaky(10))
	want(t, ask(t, c, leaky(1))[0], v1.Status_OVER_LIMIT, 0)
	want(t, ask(t, c, leaky(0))[0], v1.Status_UNDER_LIMIT, 0)
}

// The denials that a server remembers are bounded.
func TestRememberedDenialsAreBounded(t *testing.T) {
	var e exhausted
	for i := range exhaustedMax + 1 {
		e.note(&dataplane.Request{Identifier: fmt.Sprint(i), Duration: time.Hour}, true)
	}
	if n := len(e.until); n != exhaustedMax {
		t.Errorf("%d are remembered, want %d", n, exhaustedMax)
	}
	last := dataplane.Request{Identifier: fmt.Sprint(exhaustedMax), Duration: time.Hour}
	if !e.has(&last) {
		t.Error("the newest is not among them")
	}
	if e.note(&last, false); e.has(&last) {
		t.Error("a key whose hits passed is still among them")
	}
}

// A key of any length is counted, apart from others, and so are hits beyond every limit.
func TestKeysAndHitsOfAnyLength(t *testing.T) {
	c := client(t)
	for _, key := range []string{strings.Repeat("k", 256), strings.Repeat("k", 257), "\x00", strings.Repeat("k", 100_000)} {
		want(t, ask(t, c, hit(key, 10))[0], v1.Status_UNDER_LIMIT, 0)
		want(t, ask(t, c, hit(key, 1))[0], v1.Status_OVER_LIMIT, 0)
	}
	for _, hits := range []int64{1 << 53, math.MaxInt64} {
		want(t, ask(t, c, hit("many", hits))[0], v1.Status_OVER_LIMIT, 10)
	}
	for _, hits := range []int64{-1 << 53, math.MinInt64} {
		want(t, ask(t, c, hit("fewer", hits))[0], v1.Status_UNDER_LIMIT, 10)
	}
}

func TestWhatIsAtFault(t *testing.T) {
	c := client(t)
	bad := func(change func(*v1.RateLimitReq)) *v1.RateLimitReq {
		r := hit("a", 1)
		change(r)
		return r
	}
	for says, r := range map[string]*v1.RateLimitReq{
		"identifier":                       hit("", 1),
		"namespace":                        bad(func(r *v1.RateLimitReq) { r.Name = "" }),
		"limit is -1":                      bad(func(r *v1.RateLimitReq) { r.Limit = -1 }),
		"duration":                         bad(func(r *v1.RateLimitReq) { r.Duration = 10 }),
		"8784h0m0s)":                       bad(func(r *v1.RateLimitReq) { r.Duration = 1 << 62 }),
		"duration is":                      bad(func(r *v1.RateLimitReq) { r.Duration = 60_000 - 1<<58 }), // 60 s mod 2^64 ns
		"DURATION_IS_GREGORIAN is not sup": hit("a", 1, v1.Behavior_DURATION_IS_GREGORIAN),
		"weirctl reset":                    hit("a", 1, v1.Behavior_RESET_REMAINING),
	} {
		all := ask(t, c, r, hit("b", 0))
		if e := all[0].GetError(); !strings.Contains(e, says) {
			t.Errorf("want %q: %q", says, e)
		}
		want(t, all[1], v1.Status_UNDER_LIMIT, 10)
	}
	_, err := c.GetRateLimits(t.Context(), &v1.GetRateLimitsReq{Requests: make([]*v1.RateLimitReq, ItemsMax+1)})
	if status.Code(err) != codes.OutOfRange {
		t.Error(err)
	}
	for _, workspace := range []string{"", strings.Repeat("x", 192)} {
		if _, err := New(server(t).limiter, workspace); !errors.Is(err, dataplane.ErrInvalid) {
			t.Error(err)
		}
	}
	if _, err := New(nil, "acme"); !errors.Is(err, dataplane.ErrInvalid) {
		t.Error(err)
	}
}

// A duration is "at most" window.DurationMax: that itself is within its bounds.
func TestTheLongestDuration(t *testing.T) {
	r := hit("a", 1)
	r.Duration = window.DurationMax.Milliseconds()
	if answer := ask(t, client(t), r)[0]; answer.GetError() != "" || answer.GetRemaining() != 9 {
		t.Errorf("%v", answer)
	}
}

// A caller who has left has nothing counted any more.
func TestACallerWhoHasLeft(t *testing.T) {
	s := server(t)
	left, leave := context.WithCancel(t.Context())
	leave()
	_, err := s.GetRateLimits(left, &v1.GetRateLimitsReq{Requests: []*v1.RateLimitReq{hit("a", 1)}})
	if status.Code(err) != codes.Canceled {
		t.Error(err)
	}
	out, err := s.GetRateLimits(t.Context(), &v1.GetRateLimitsReq{Requests: []*v1.RateLimitReq{hit("a", 0)}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, out.GetResponses()[0], v1.Status_UNDER_LIMIT, 10)
}

// "ResetTime is the time at which a denied request would pass": at that millisecond, and not before.
func TestResetTimeIsWhenADeniedRequestWouldPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := server(t)
		decide := func(hits int64) *v1.RateLimitResp {
			out, err := s.GetRateLimits(t.Context(), &v1.GetRateLimitsReq{Requests: []*v1.RateLimitReq{hit("a", hits)}})
			if err != nil {
				t.Fatal(err)
			}
			return out.GetResponses()[0]
		}
		want(t, decide(10), v1.Status_UNDER_LIMIT, 0)
		denied := decide(1)
		want(t, denied, v1.Status_OVER_LIMIT, 0)
		time.Sleep(time.Until(time.UnixMilli(denied.GetResetTime() - 1)))
		want(t, decide(1), v1.Status_OVER_LIMIT, 0)
		time.Sleep(time.Millisecond)
		want(t, decide(1), v1.Status_UNDER_LIMIT, 0)
	})
}

func TestItsHTTPAPI(t *testing.T) {
	h := server(t).Handler()
	call := func(method, path, body string) (int, map[string]any) {
		answer := httptest.NewRecorder()
		h.ServeHTTP(answer, httptest.NewRequest(method, path, strings.NewReader(body)))
		var said map[string]any
		_ = json.Unmarshal(answer.Body.Bytes(), &said)
		return answer.Code, said
	}
	body := `{"requests":[{"name":"n","unique_key":"k","hits":"4","limit":"10","duration":"86400000","other":1}]}`
	for _, c := range []struct{ status, remaining string }{{"UNDER_LIMIT", "6"}, {"UNDER_LIMIT", "2"}, {"OVER_LIMIT", "2"}} {
		code, said := call(http.MethodPost, "/v1/GetRateLimits", body)
		first := fmt.Sprint(said["responses"])
		if code != 200 || !strings.Contains(first, "status:"+c.status) || !strings.Contains(first, "remaining:"+c.remaining) ||
			!strings.Contains(first, "error: ") || !strings.Contains(first, "reset_time:") {
			t.Errorf("%d %v, want %v", code, said, c)
		}
	}
	for _, key := range []string{`\ud800`, `\ud801`, "\xff"} { // are counted, apart from others
		odd := strings.Replace(strings.Replace(body, `"k"`, `"`+key+`"`, 1), `"4"`, `"10"`, 1)
		for _, want := range []string{"UNDER_LIMIT", "OVER_LIMIT"} {
			if code, said := call(http.MethodPost, "/v1/GetRateLimits", odd); code != 200 || !strings.Contains(fmt.Sprint(said["responses"]), want) {
				t.Errorf("%q: %d %v, want %v", key, code, said, want)
			}
		}
	}
	if code, said := call(http.MethodGet, "/v1/HealthCheck", ""); code != 200 || said["status"] != "healthy" || said["peer_count"] != 1.0 {
		t.Errorf("%d %v", code, said)
	}
	if code, _ := call(http.MethodGet, "/v1/LiveCheck", ""); code != 200 {
		t.Error(code)
	}
	many := `{"requests":[` + strings.Repeat("{},", ItemsMax) + `{}]}`
	for says, body := range map[string]string{"unexpected EOF": "{", "longer than": strings.Repeat(" ", BodyMax+1), "1001 items": many} {
		code, said := call(http.MethodPost, "/v1/GetRateLimits", body)
		if message, _ := said["message"].(string); code != 400 || !strings.Contains(message, says) || said["code"] == nil {
			t.Errorf("want %q: %d %v", says, code, said)
		}
	}
	if code, _ := call(http.MethodGet, "/v1/GetRateLimits", ""); code != http.StatusMethodNotAllowed {
		t.Error(code)
	}
}

// A server that drains is unhealthy, so that load balancers look for others, and alive.
func TestDrain(t *testing.T) {
	s := server(t)
	s.Drain()
	if _, err := s.HealthCheck(t.Context(), new(v1.HealthCheckReq)); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	for path, want := range map[string]int{"/v1/HealthCheck": 503, "/v1/LiveCheck": 200} {
		answer := httptest.NewRecorder()
		s.Handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		if answer.Code != want {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
	}
}

// silent is an origin that answers no read.
type silent struct{ *memstore.Origin }

func (silent) Read(ctx context.Context, _ []window.Cell) (store.Reply, error) {
	<-ctx.Done()
	return store.Reply{}, ctx.Err()
}

// The requests of a call wait for a silent Redis together no longer than waitMax, and all are decided.
func TestACallsWaitIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := dataplane.New(dataplane.Config{Region: "eu", Origin: silent{memstore.NewOrigin(memstore.OriginOptions{})},
			Breaker: dataplane.Breaker{CallsMin: 1_000_000}})
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(l, "acme")
		if err != nil {
			t.Fatal(err)
		}
		in := new(v1.GetRateLimitsReq)
		for i := range ItemsMax {
			in.Requests = append(in.Requests, hit(fmt.Sprint(i), 1))
		}
		began := time.Now()
		out, err := s.GetRateLimits(t.Context(), in)
		if took := time.Since(began); err != nil || took > waitMax || took < waitMax/2 {
			t.Errorf("%v after %v", err, took)
		}
		for _, r := range out.GetResponses() {
			want(t, r, v1.Status_UNDER_LIMIT, 9)
		}
		time.Sleep(time.Second) // the last reads end
	})
}
