package ululimiter

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ulule/limiter/v3"
	"github.com/ulule/limiter/v3/drivers/middleware/stdlib"

	"github.com/weirhq/weir/dataplane"
)

func instance(t *testing.T, formatted string) *limiter.Limiter {
	t.Helper()
	l, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(l, "acme", "api")
	if err != nil {
		t.Fatal(err)
	}
	rate, err := limiter.NewRateFromFormatted(formatted)
	if err != nil {
		t.Fatal(err)
	}
	return limiter.New(s, rate, limiter.WithTrustForwardHeader(false))
}

func TestALimitIsReached(t *testing.T) {
	u := instance(t, "100-D")
	var passed atomic.Int64
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				if c, err := u.Get(t.Context(), "ann"); err != nil {
					t.Error(err)
				} else if !c.Reached {
					passed.Add(1)
				}
			}
		})
	}
	all.Wait()
	c, err := u.Get(t.Context(), "ann")
	wait := time.Until(time.Unix(c.Reset, 0))
	if passed.Load() != 100 || !c.Reached || c.Limit != 100 || c.Remaining != 0 || err != nil || wait <= 0 || wait > 48*time.Hour {
		t.Errorf("%d passed; then %+v in %v, %v", passed.Load(), c, wait, err)
	}
}

func TestPeekCountsNothing(t *testing.T) {
	u := instance(t, "3-D")
	for left := int64(3); left > 0; left-- {
		for range 2 {
			if c, err := u.Peek(t.Context(), "ann"); c.Reached || c.Remaining != left || err != nil {
				t.Errorf("%+v, %v; %d are left", c, err, left)
			}
		}
		if c, err := u.Increment(t.Context(), "ann", 1); c.Reached || c.Remaining != left-1 || err != nil {
			t.Errorf("%+v, %v", c, err)
		}
	}
	if c, err := u.Peek(t.Context(), "ann"); !c.Reached || err != nil {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := u.Increment(t.Context(), "bob", 4); !c.Reached || c.Remaining != 3 || err != nil {
		t.Errorf("4 of 3: %+v, %v", c, err)
	}
}

// "Reset is in Unix seconds: the time at which a denied request would pass": rounded up to the full second. The cost of
// a full cell still weighs on the next cell.
func TestResetIsWhenADeniedRequestWouldPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := instance(t, "3-D")
		time.Sleep(700 * time.Millisecond)
		if c, err := u.Increment(t.Context(), "ann", 3); c.Reached || err != nil {
			t.Fatalf("%+v, %v", c, err)
		}
		c, err := u.Get(t.Context(), "ann")
		if !c.Reached || err != nil {
			t.Fatalf("%+v, %v", c, err)
		}
		time.Sleep(time.Until(time.Unix(c.Reset-1, 0)))
		if early, err := u.Get(t.Context(), "ann"); !early.Reached || err != nil {
			t.Errorf("a second before its time: %+v, %v", early, err)
		}
		time.Sleep(time.Second)
		if c, err := u.Get(t.Context(), "ann"); c.Reached || err != nil {
			t.Errorf("at its time: %+v, %v", c, err)
		}
	})
}

func TestWhatIsNotHere(t *testing.T) {
	u := instance(t, "3-D")
	if _, err := u.Reset(t.Context(), "ann"); !errors.Is(err, ErrReset) {
		t.Error(err)
	}
	if _, err := u.Increment(t.Context(), "ann", -1); !errors.Is(err, dataplane.ErrInvalid) {
		t.Errorf("a negative count: %v", err)
	}
	for want, names := range map[string][2]string{"workspace": {"", "api"}, "namespace": {"acme", strings.Repeat("x", 256)}} {
		if _, err := New(u.Store.(*Store).limiter, names[0], names[1]); !errors.Is(err, dataplane.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
	if _, err := New(nil, "acme", "api"); !errors.Is(err, dataplane.ErrInvalid) {
		t.Error(err)
	}
}

// A key of any bytes is counted, apart from others, by the Store and by ulule/limiter's own middleware, which panics
// where there is an error.
func TestKeysOfAnyBytesAreCounted(t *testing.T) {
	u := instance(t, "2-D")
	odd := []string{"", "\x00", "\xff", strings.Repeat("k", 256), strings.Repeat("k", 257), strings.Repeat("\xff", 1<<20)}
	for _, key := range odd {
		for i := range int64(3) {
			if c, err := u.Get(t.Context(), key); c.Reached != (i == 2) || c.Remaining != max(0, 1-i) || err != nil {
				t.Errorf("%.20q, request %d: %+v, %v", key, i, c, err)
			}
		}
		if c, err := u.Peek(t.Context(), key); !c.Reached || err != nil {
			t.Errorf("%.20q: %+v, %v", key, c, err)
		}
	}
	if c, err := u.Increment(t.Context(), "ann", math.MaxInt64); !c.Reached || c.Remaining != 2 || err != nil {
		t.Errorf("a count beyond every limit: %+v, %v", c, err)
	}
	byHeader := stdlib.WithKeyGetter(func(r *http.Request) string { return r.Header.Get("X-Key") })
	api := stdlib.NewMiddleware(instance(t, "2-D"), byHeader).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
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

// ulule/limiter's own middleware, unchanged.
func TestItsMiddleware(t *testing.T) {
	api := stdlib.NewMiddleware(instance(t, "2-D")).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i, want := range []int{200, 200, 429} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = "203.0.113.7:4711"
		answer := httptest.NewRecorder()
		api.ServeHTTP(answer, r)
		if answer.Code != want || answer.Header().Get("X-RateLimit-Limit") != "2" || answer.Header().Get("X-RateLimit-Remaining") != strconv.Itoa(max(0, 1-i)) {
			t.Errorf("%d: %d %v", i, answer.Code, answer.Header())
		}
	}
}
