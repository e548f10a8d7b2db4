package httplimit_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/httplimit"
	"github.com/weirhq/weir/dataplane/memstore"
)

// atOnce returns a limit of requests at once for each API key.
func atOnce(limiter httplimit.Acquirer, limit int64) *httplimit.Concurrency {
	return &httplimit.Concurrency{Limiter: limiter, Workspace: "acme", Namespace: "at once",
		Key: httplimit.Header("X-Api-Key"), Limit: limit}
}

func askAtOnce(t testing.TB, h http.Handler, caller string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/things", nil)
	if caller != "" {
		r.Header.Set("X-Api-Key", caller)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// A limit that cannot be applied is an error of the server. Only its log has the reason.
func TestConcurrencySaysWhyItCannotBeApplied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := dataplane.New(dataplane.Config{})
		if err != nil {
			t.Fatal(err)
		}
		for _, wait := range []time.Duration{0, time.Second} {
			var lines strings.Builder
			c := atOnce(limiter, -1)
			c.Wait, c.Logger = wait, slog.New(slog.NewTextHandler(&lines, nil))
			w := askAtOnce(t, c.Handler(http.NotFoundHandler()), "ann")
			if w.Code != http.StatusInternalServerError || strings.Contains(w.Body.String(), "-1") ||
				!strings.Contains(lines.String(), "limit is -1") {
				t.Errorf("%d %s, and the log has %s", w.Code, w.Body, lines.String())
			}
		}
	})
}

func TestConcurrencyHoldsASlotForARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := dataplane.New(dataplane.Config{})
		if err != nil {
			t.Fatal(err)
		}
		c := atOnce(limiter, 1)
		h := c.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(time.Second) }))
		first := make(chan int)
		go func() { first <- askAtOnce(t, h, "ann").Code }()
		synctest.Wait()
		if w := askAtOnce(t, h, "ann"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "1" {
			t.Errorf("%d, %v", w.Code, w.Header())
		}
		if w := askAtOnce(t, h, ""); w.Code != http.StatusBadRequest {
			t.Errorf("without a key: %d", w.Code)
		}
		patient := *c
		patient.Wait = time.Minute
		if w := askAtOnce(t, patient.Handler(h), "bob"); w.Code != http.StatusTooManyRequests {
			t.Errorf("one in the other: %d", w.Code)
		}
		if code := <-first; code != http.StatusOK {
			t.Error(code)
		}
		began := time.Now()
		go askAtOnce(t, h, "ann")
		synctest.Wait()
		waits := patient.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		if w := askAtOnce(t, waits, "ann"); w.Code != http.StatusOK || time.Since(began) != time.Second {
			t.Errorf("%d after %v", w.Code, time.Since(began))
		}
	})
}

func TestConcurrencyReleasesAfterAPanic(t *testing.T) {
	limiter, err := dataplane.New(dataplane.Config{})
	if err != nil {
		t.Fatal(err)
	}
	h := atOnce(limiter, 1).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		panic(http.ErrAbortHandler)
	}))
	for range 3 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("it was refused")
				}
			}()
			askAtOnce(t, h, "ann")
		}()
	}
}

// A request whose slot is lost has its context cancelled.
func TestConcurrencyCancelsWhatHasLostItsSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		limiter, err := dataplane.New(dataplane.Config{Origin: origin, Region: "eu"})
		if err == nil {
			err = limiter.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		h := atOnce(limiter, 1).Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			origin.Faults.Fail(errors.New("it is out"))
			<-r.Context().Done()
			if !errors.Is(context.Cause(r.Context()), dataplane.ErrLeaseLost) {
				t.Error(context.Cause(r.Context()))
			}
		}))
		if w := askAtOnce(t, h, "ann"); w.Code != http.StatusOK {
			t.Error(w.Code)
		}
		if w := askAtOnce(t, h, "ann"); w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
			t.Errorf("in the outage: %d, %v", w.Code, w.Header())
		}
		origin.Faults.Fail(nil)
		if err := limiter.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
