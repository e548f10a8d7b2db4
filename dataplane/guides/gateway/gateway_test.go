package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/streamed"
	"github.com/weirhq/weir/shared/await"
)

const day = 24 * time.Hour // no test outlasts it

// fleet is a set of gateways before the same model, on nodes of one region.
type fleet struct {
	gateways []*httptest.Server
	streams  []*streamed.Streams
	limiters []*dataplane.Limiter
}

func start(t *testing.T, n int, model http.Handler, orgLimit int64) *fleet {
	t.Helper()
	upstream := httptest.NewServer(model)
	t.Cleanup(upstream.Close)
	origin, f := memstore.NewOrigin(memstore.OriginOptions{}), new(fleet)
	for i := range n {
		limiter, err := dataplane.New(dataplane.Config{Region: "eu", NodeID: fmt.Sprint(i), Origin: origin.Client(),
			ReadTimeout: 10 * time.Second}) // however slow this machine is, no origin is away
		if err == nil {
			err = limiter.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		streams, err := streamed.New(streamed.Config{Reservations: limiter})
		if err != nil {
			t.Fatal(err)
		}
		g := &gateway{limiter: limiter, upstream: upstream.URL, client: upstream.Client(),
			orgs: map[string]string{"key": "acme", "other": "other"}, window: day, orgLimit: orgLimit,
			models: map[string]int64{"words": 1_000_000}, streams: streams}
		server := httptest.NewServer(g.handler())
		t.Cleanup(func() {
			server.Close()
			_ = streams.Stop(context.Background())
			_ = limiter.Stop(context.Background())
		})
		f.gateways, f.streams = append(f.gateways, server), append(f.streams, streams)
		f.limiters = append(f.limiters, limiter)
	}
	return f
}

// answer is a response that is being streamed. The test's cleanup closes it.
type answer struct {
	status int
	header http.Header
	body   io.ReadCloser
}

// ask sends a prompt, for example promptOf's of 4 + 1 tokens.
func (f *fleet) ask(t *testing.T, gateway int, key, body string) answer {
	t.Helper()
	url := f.gateways[gateway].URL + "/v1/chat/completions"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	got, err := f.gateways[gateway].Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = got.Body.Close() })
	return answer{got.StatusCode, got.Header, got.Body}
}

func promptOf(most int64) string {
	return fmt.Sprintf(`{"model":"words","max_tokens":%d,"messages":[{"role":"user","content":"why"}]}`, most)
}

// wantUsed waits until an organisation's tokens are counted so.
func (f *fleet) wantUsed(t *testing.T, org string, want int64) {
	t.Helper()
	var used int64
	await.True(t, fmt.Sprint(want, " tokens are counted"), func() bool {
		used = f.used(t, org)
		return used == want
	})
}

func (f *fleet) used(t *testing.T, org string) int64 {
	got := f.limiters[0].Reserve(t.Context(), dataplane.ReserveRequest{Requests: []dataplane.Request{{
		Workspace: "gateway", Namespace: "org-tokens", Identifier: org, Limit: 1 << 40, Duration: day, ZeroCost: true}}})
	if got.Err != nil || !got.Allowed {
		t.Fatalf("%+v", got)
	}
	return 1<<40 - got.Decisions[0].Remaining
}

func TestAnAnswerTakesWhatItTook(t *testing.T) {
	f := start(t, 1, fake{words: 20}, 100_000)
	got := f.ask(t, 0, "key", promptOf(1000))
	text, err := io.ReadAll(got.body)
	if err != nil || got.status != http.StatusOK || strings.Count(string(text), "word") != 20 ||
		!strings.HasSuffix(string(text), "data: [DONE]\n\n") {
		t.Errorf("%v, %v: %q", got.status, err, text)
	}
	f.wantUsed(t, "acme", 25)
}

// If a caller leaves, or the model dies, the answer ends. The tokens streamed until then count.
func TestAnAnswerThatIsCutOffTakesWhatItTook(t *testing.T) {
	f := start(t, 1, fake{words: 1000, cutAt: 30}, 100_000)
	got := f.ask(t, 0, "key", promptOf(1000))
	if _, err := io.ReadAll(got.body); err == nil {
		t.Error("the caller does not see that the answer is cut off")
	}
	f.wantUsed(t, "acme", 35)

	f = start(t, 1, fake{words: 1 << 14, pause: time.Millisecond}, 100_000)
	got = f.ask(t, 0, "key", promptOf(1<<14))
	lines := bufio.NewScanner(got.body)
	for range 20 {
		lines.Scan()
	}
	_ = got.body.Close()
	await.True(t, "it is settled", func() bool { return f.used(t, "acme") < 1<<14 })
	if used := f.used(t, "acme"); used < 15 {
		t.Errorf("%d are counted of an answer of which 10 were read", used)
	}
}

func TestAnAnswerWaitsForRoom(t *testing.T) {
	f := start(t, 2, fake{words: 1 << 14, pause: time.Millisecond}, 3000)
	first := f.ask(t, 0, "key", promptOf(2000))
	got := f.ask(t, 1, "key", promptOf(2000))
	if got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
		t.Errorf("beside another: %d, %v", got.status, got.header)
	}
	if other := f.ask(t, 1, "other", promptOf(1)); other.status != http.StatusOK {
		t.Errorf("of another organisation: %d", other.status)
	}
	_ = first.body.Close()
	await.True(t, "there is room", func() bool { return f.ask(t, 1, "key", promptOf(10)).status == http.StatusOK })
}

func TestTheGatewayRefusesWhatItCannotServe(t *testing.T) {
	f := start(t, 1, fake{}, 1000)
	for want, c := range map[string]struct {
		key, body string
		status    int
	}{
		"API key":                  {"nobody's", promptOf(1), http.StatusUnauthorized},
		"no JSON":                  {"key", "why", http.StatusBadRequest},
		"max_tokens is 0":          {"key", promptOf(0), http.StatusBadRequest},
		"max_tokens is 32769":      {"key", promptOf(32_769), http.StatusBadRequest},
		"which is not served":      {"key", `{"model":"none"}`, http.StatusBadRequest},
		"too large":                {"key", `{"model":"` + strings.Repeat("x", bodyBytesMax), http.StatusBadRequest},
		"cost more than its limit": {"key", promptOf(1001), http.StatusTooManyRequests},
	} {
		got := f.ask(t, 0, c.key, c.body)
		text, err := io.ReadAll(got.body)
		if err != nil || got.status != c.status || !strings.Contains(string(text), want) {
			t.Errorf("%s: %d, %v: %s", want, got.status, err, text)
		}
	}
	f.wantUsed(t, "acme", 0)
}

// Answers through two gateways never take more than their limit together.
func TestGatewaysShareALimit(t *testing.T) {
	const limit = 2000
	f := start(t, 2, fake{words: 100}, limit)
	var all sync.WaitGroup
	var mu sync.Mutex
	taken := 0
	for i := range 40 {
		all.Go(func() {
			for range 5 {
				r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost,
					f.gateways[i%2].URL+"/v1/chat/completions", strings.NewReader(promptOf(195)))
				r.Header.Set("Authorization", "Bearer key")
				answer, err := http.DefaultClient.Do(r)
				if err != nil {
					t.Error(err)
					return
				}
				_, _ = io.Copy(io.Discard, answer.Body)
				_ = answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					mu.Lock()
					taken += 105
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	if taken > limit || taken == 0 {
		t.Errorf("%d are taken of %d", taken, limit)
	}
	f.wantUsed(t, "acme", int64(taken))
}

// An organisation that requests more answers than its share, and reads none of them, takes no place from another.
func TestAnOrganisationThatFloodsTakesItsShareAlone(t *testing.T) {
	f := start(t, 1, fake{words: 1 << 14, pause: time.Millisecond}, 1_000_000_000)
	var all sync.WaitGroup
	var served, refused atomic.Int64
	for range 4 * orgAnswersMax {
		all.Go(func() {
			switch got := f.askUntilDecided(t, "key", promptOf(1<<12)); {
			case got.status == http.StatusOK:
				served.Add(1)
			case got.status == http.StatusTooManyRequests && got.header.Get("Retry-After") != "":
				refused.Add(1)
			default:
				t.Errorf("in the flood: %d", got.status)
			}
		})
	}
	all.Wait()
	if served.Load() != orgAnswersMax || refused.Load() != 3*orgAnswersMax {
		t.Errorf("%d are answered and %d refused (%d and %d)", served.Load(), refused.Load(), orgAnswersMax,
			3*orgAnswersMax)
	}
	if other := f.askUntilDecided(t, "other", promptOf(1)); other.status != http.StatusOK {
		t.Errorf("of another organisation: %d", other.status)
	}
}

// askUntilDecided is ask for a machine on which hundreds of callers wait for processors: a gateway answers 503 if its
// limiter cannot decide within a second, and the caller asks again.
func (f *fleet) askUntilDecided(t *testing.T, key, body string) (got answer) {
	t.Helper()
	for {
		got = f.ask(t, 0, key, body)
		if got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
			return got
		}
	}
}

// The server that main runs answers requests, and ends.
func TestRun(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- run(ctx, listener, "") }()
	url := "http://" + listener.Addr().String() + "/v1/chat/completions"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(promptOf(3)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer demo")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || strings.Count(string(text), "word") != 3 {
		t.Errorf("%d, %v: %s", answer.StatusCode, err, text)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
