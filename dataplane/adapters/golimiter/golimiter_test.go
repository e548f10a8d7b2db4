package golimiter

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	limiter "github.com/sethvargo/go-limiter"
	"github.com/sethvargo/go-limiter/httplimit"

	"github.com/weirhq/weir/dataplane"
)

func store(t *testing.T, tokens uint64) *Store {
	t.Helper()
	l, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(Config{Limiter: l, Workspace: "acme", Namespace: "api", Tokens: tokens, Interval: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestTakeTakesWhatThereIs(t *testing.T) {
	s := store(t, 100)
	var taken atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if _, _, _, ok, err := s.Take(t.Context(), "ann"); err != nil {
					t.Error(err)
				} else if ok {
					taken.Add(1)
				}
			}
		})
	}
	all.Wait()
	tokens, remaining, reset, ok, err := s.Take(t.Context(), "ann")
	wait := time.Until(time.Unix(0, int64(reset)))
	if taken.Load() != 100 || tokens != 100 || remaining != 0 || ok || err != nil || wait <= 0 || wait > 48*time.Hour {
		t.Errorf("%d taken; then %d %d in %v %v %v", taken.Load(), tokens, remaining, wait, ok, err)
	}
	if tokens, remaining, err := s.Get(t.Context(), "ann"); tokens != 100 || remaining != 0 || err != nil {
		t.Errorf("%d %d %v", tokens, remaining, err)
	}
	if tokens, remaining, err := s.Get(t.Context(), "bob"); tokens != 100 || remaining != 100 || err != nil {
		t.Errorf("of nobody: %d %d %v", tokens, remaining, err)
	}
}

// "reset is … the time at which a denied request would pass, or the end of the window's cell": the cost of a full cell
// still weighs on the next cell.
func TestResetIsWhenADeniedRequestWouldPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := store(t, 3)
		for range 3 {
			_, _, reset, ok, err := s.Take(t.Context(), "ann")
			if end := time.Now().Add(24 * time.Hour); !ok || err != nil || !time.Unix(0, int64(reset)).Equal(end) {
				t.Errorf("%v %v, at %v, want %v", ok, err, time.Unix(0, int64(reset)), end)
			}
		}
		_, _, reset, ok, _ := s.Take(t.Context(), "ann")
		time.Sleep(time.Until(time.Unix(0, int64(reset))) - time.Millisecond)
		if _, _, _, early, _ := s.Take(t.Context(), "ann"); ok || early {
			t.Errorf("passed: %v at once, %v before its time", ok, early)
		}
		time.Sleep(time.Millisecond)
		if _, _, _, ok, err := s.Take(t.Context(), "ann"); !ok || err != nil {
			t.Errorf("at its time: %v %v", ok, err)
		}
	})
}

func TestBurstGivesBack(t *testing.T) {
	s := store(t, 3)
	for range 3 {
		if _, _, _, ok, _ := s.Take(t.Context(), "ann"); !ok {
			t.Fatal("denied")
		}
	}
	if err := s.Burst(t.Context(), "ann", 2); err != nil {
		t.Fatal(err)
	}
	if _, remaining, _ := s.Get(t.Context(), "ann"); remaining != 2 {
		t.Errorf("%d left, want 2", remaining)
	}
	if err := s.Burst(t.Context(), "ann", 50); err != nil {
		t.Fatal(err)
	}
	if _, remaining, _ := s.Get(t.Context(), "ann"); remaining != 3 {
		t.Errorf("%d left, want the limit, 3", remaining)
	}
	if _, _, _, ok, err := s.Take(t.Context(), "ann"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if err := s.Burst(t.Context(), "ann", 0); err != nil {
		t.Error(err)
	}
	if _, remaining, _ := s.Get(t.Context(), "ann"); remaining != 2 {
		t.Errorf("%d left after 0 were given back, want 2", remaining)
	}
	if err := s.Burst(t.Context(), "ann", 1<<63); !errors.Is(err, dataplane.ErrInvalid) {
		t.Error(err)
	}
}

func TestWhatIsOutOfBounds(t *testing.T) {
	l, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]Config{
		"Limiter is nil": {Workspace: "acme", Namespace: "api"},
		"workspace":      {Limiter: l, Namespace: "api"},
		"limit is":       {Limiter: l, Workspace: "acme", Namespace: "api", Tokens: 1 << 63},
		"duration":       {Limiter: l, Workspace: "acme", Namespace: "api", Interval: time.Millisecond},
	} {
		if _, err := New(c); !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	s, err := New(Config{Limiter: l, Workspace: "acme", Namespace: "api"})
	if err != nil {
		t.Fatal(err)
	}
	tokens, _, reset, ok, err := s.Take(t.Context(), "ann")
	if tokens != 1 || !ok || err != nil || time.Until(time.Unix(0, int64(reset))) > time.Second {
		t.Errorf("by default: %d until %v, %v %v", tokens, time.Unix(0, int64(reset)), ok, err)
	}
	if err := s.Set(t.Context(), "ann", 7, time.Second); !errors.Is(err, ErrSet) {
		t.Error(err)
	}
}

// odd are keys that callers can choose: empty, long, and not UTF-8.
var odd = []string{"", "\x00", "\xff", strings.Repeat("k", 256), strings.Repeat("k", 257), strings.Repeat("\xff", 1<<20)}

// A key of any bytes is counted, apart from others, by the Store and by go-limiter's own middleware, which answers 500
// where there is an error.
func TestKeysOfAnyBytesAreCounted(t *testing.T) {
	s := store(t, 2)
	for _, key := range odd {
		for i := range uint64(3) {
			_, remaining, _, ok, err := s.Take(t.Context(), key)
			if ok != (i < 2) || err != nil || ok && remaining != 1-i {
				t.Errorf("%.20q, take %d: %v with %d left, %v", key, i, ok, remaining, err)
			}
		}
		if _, remaining, err := s.Get(t.Context(), key); remaining != 0 || err != nil {
			t.Errorf("%.20q: %d left, %v", key, remaining, err)
		}
		if err := s.Burst(t.Context(), key, 1); err != nil {
			t.Errorf("%.20q: %v", key, err)
		}
	}
	guard, err := httplimit.NewMiddleware(store(t, 2), func(r *http.Request) (string, error) { return r.Header.Get("X-Key"), nil })
	if err != nil {
		t.Fatal(err)
	}
	api := guard.Handle(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for _, key := range odd {
		for i, want := range []int{200, 200, 429} {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-Key", key)
			answer := httptest.NewRecorder()
			if api.ServeHTTP(answer, r); answer.Code != want {
				t.Errorf("%.20q, request %d: %d, want %d", key, i, answer.Code, want)
			}
		}
	}
}

func TestAStoreThatIsClosed(t *testing.T) {
	s := store(t, 3)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _, _, ok, took := s.Take(t.Context(), "ann")
	_, _, got := s.Get(t.Context(), "ann")
	for _, err := range []error{took, got, s.Burst(t.Context(), "ann", 1)} {
		if ok || !errors.Is(err, limiter.ErrStopped) {
			t.Errorf("%v %v", ok, err)
		}
	}
}

// go-limiter's own middleware, unchanged.
func TestItsMiddleware(t *testing.T) {
	guard, err := httplimit.NewMiddleware(store(t, 2), httplimit.IPKeyFunc())
	if err != nil {
		t.Fatal(err)
	}
	api := guard.Handle(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i, want := range []int{200, 200, 429} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "203.0.113.7:4711"
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, r)
		if answer.Code != want || answer.Header().Get(httplimit.HeaderRateLimitLimit) != "2" ||
			answer.Header().Get(httplimit.HeaderRateLimitRemaining) != strconv.Itoa(max(0, 1-i)) {
			t.Errorf("%d: %d %v", i, answer.Code, answer.Header())
		}
	}
}
