package guides

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
)

// spread is a guard that spreads the retries of denied callers over five seconds.
func spread(limiter *dataplane.Limiter) (*httplimit.Guard, error) {
	return httplimit.New(httplimit.Config{
		Limiter: limiter,
		Jitter:  5 * time.Second,
		Policies: []httplimit.Policy{{
			Name: "key", Workspace: "acme", Key: httplimit.Header("X-Api-Key"),
			Quota: httplimit.Quota{Limit: 100, Duration: time.Minute},
		}},
	})
}

// errDenied is returned by do for a request that was denied, and that waiting does not help or that has waited enough.
var errDenied = errors.New("denied by a limit")

// do sends a request up to four times, and waits in between as long as the server requires: two minutes at a time at
// most, and no longer than the request's context lasts.
func do(client *http.Client, r *http.Request) (*http.Response, error) {
	for try := 1; ; try++ {
		response, err := client.Do(r)
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusTooManyRequests && response.StatusCode != http.StatusServiceUnavailable {
			return response, nil
		}
		response.Body.Close()
		seconds, err := strconv.Atoi(response.Header.Get("Retry-After"))
		wait := time.Duration(seconds) * time.Second
		if err != nil || wait > 2*time.Minute || try == 4 { // without Retry-After the same request never passes
			return nil, fmt.Errorf("%w: status %d", errDenied, response.StatusCode)
		}
		wait += rand.N(time.Second) // not all clients at once
		select {
		case <-time.After(wait):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
		if r.GetBody != nil { // the body was read by the first try
			if r.Body, err = r.GetBody(); err != nil {
				return nil, err
			}
		}
	}
}

// served sends requests to a handler in this process, so that time may be virtual.
type served struct{ http.Handler }

func (s served) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w.Result(), nil
}

// post sends a body with an API key.
func post(ctx context.Context, t *testing.T, api http.Handler, body string) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://api.example/", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Api-Key", "k1")
	return do(&http.Client{Transport: served{api}}, r)
}

// A client that waits for Retry-After gets through with its first retry, and with the same body.
func TestAClientThatWaitsGetsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard, err := spread(alone(t))
		if err != nil {
			t.Fatal(err)
		}
		requests, bodies := 0, map[string]int{}
		handler := guard.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			bodies[string(body)]++
		}))
		api := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { requests++; handler.ServeHTTP(w, r) })
		began := time.Now()
		for range 101 {
			response, err := post(t.Context(), t, api, "order")
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
		}
		if took := time.Since(began); requests != 102 || bodies["order"] != 101 || took < time.Minute || took > 67*time.Second {
			t.Errorf("%d requests for %d bodies in %v", requests, bodies["order"], took)
		}
	})
}

// Denied callers do not come back in the same second.
func TestJitterSpreadsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		guard, err := spread(alone(t))
		if err != nil {
			t.Fatal(err)
		}
		api := guard.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		seen := map[string]int{}
		for range 1000 {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-Api-Key", "k1")
			w := httptest.NewRecorder()
			if api.ServeHTTP(w, r); w.Code == http.StatusTooManyRequests {
				seen[w.Header().Get("Retry-After")]++
			}
		}
		for seconds := 61; seconds <= 65; seconds++ {
			if n := seen[strconv.Itoa(seconds)]; n < 100 {
				t.Errorf("%d of 900 wait for %d s", n, seconds)
			}
		}
		if n := len(seen); n > 6 { // up to 65.001 s, rounded up
			t.Errorf("%v", seen)
		}
	})
}

// A client gives up where waiting does not help, after four tries, and when its context ends.
func TestAClientGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		answer := func(status int, after string) http.Handler {
			tries = 0
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if tries++; after != "" {
					w.Header().Set("Retry-After", after)
				}
				w.WriteHeader(status)
			})
		}
		send := func(ctx context.Context, api http.Handler) error {
			response, err := post(ctx, t, api, "order")
			if err == nil {
				response.Body.Close()
			}
			return err
		}
		for _, c := range []struct {
			status int
			after  string
			tries  int
		}{{429, "", 1}, {429, "3600", 1}, {429, "2", 4}, {503, "2", 4}, {503, "", 1}} {
			if err := send(t.Context(), answer(c.status, c.after)); !errors.Is(err, errDenied) || tries != c.tries {
				t.Errorf("%+v: %v after %d tries", c, err, tries)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := send(ctx, answer(429, "2")); !errors.Is(err, context.DeadlineExceeded) || tries != 1 {
			t.Errorf("%v after %d tries", err, tries)
		}
	})
}

// A guard sends the responses that the page shows, byte by byte except for the order of fields.
func TestTheResponsesOfThePage(t *testing.T) {
	page, err := os.ReadFile("retries.md")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 12, 0, 30, 0, time.UTC)
	clock := func() time.Time { return at }
	limiter, err := dataplane.New(dataplane.Config{Clock: clock})
	if err != nil {
		t.Fatal(err)
	}
	outage := scripted{dataplane.Decision{Source: dataplane.SourceDegradedClosed, Limit: 2, Duration: time.Minute,
		RetryAfter: 1500 * time.Millisecond}}
	guard := func(limiter httplimit.Limiter, legacy httplimit.Legacy) http.Handler {
		cost := func(c httplimit.Call) int64 { return int64(len(c.Header().Get("X-Cost")) + 1) }
		g, err := httplimit.New(httplimit.Config{Limiter: limiter, Clock: clock, Legacy: legacy, Policies: []httplimit.Policy{
			{Name: "key", Workspace: "acme", Key: httplimit.Header("X-Api-Key"), Cost: cost,
				Quota: httplimit.Quota{Limit: 2, Duration: time.Minute}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	}
	show := func(api http.Handler, headers ...string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		text := fmt.Sprintf("    HTTP/1.1 %d %s\n", w.Code, http.StatusText(w.Code))
		for _, name := range []string{"Ratelimit-Policy", "Ratelimit", "X-Ratelimit-Limit", "X-Ratelimit-Remaining",
			"X-Ratelimit-Reset", "Retry-After"} {
			if value := w.Header().Get(name); value != "" {
				text += "    " + name + ": " + value + "\n"
			}
		}
		if !strings.Contains(string(page), text+"\n") {
			t.Errorf("the page does not show\n%s", text)
		}
	}
	api := guard(limiter, httplimit.LegacyNone)
	show(api, "X-Api-Key", "k1")
	show(api, "X-Api-Key", "k2", "X-Cost", "xxx") // 4, and the limit is 2
	limiter.Allow(t.Context(), dataplane.Request{Workspace: "acme", Namespace: "key", Identifier: "k1", Limit: 2, Duration: time.Minute})
	show(api, "X-Api-Key", "k1")
	show(api)
	show(guard(outage, httplimit.LegacyNone), "X-Api-Key", "k1")
	show(guard(limiter, httplimit.LegacyEpoch), "X-Api-Key", "k1")
	show(guard(limiter, httplimit.LegacyDelta), "X-Api-Key", "k1")
	if n := len(regexp.MustCompile(`(?m)^    HTTP/1.1 `).FindAll(page, -1)); n != 7 {
		t.Errorf("the page shows %d responses, and the test makes 7", n)
	}
}
