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
	"github.com/weirhq/weir/dataplane/streamed"
)

func tokensOf(user string, most, limit int64) dataplane.ReserveRequest {
	return dataplane.ReserveRequest{Returned: true, Requests: []dataplane.Request{{Workspace: "acme", Namespace: "tokens",
		Identifier: user, Limit: limit, Duration: time.Minute, Cost: most}}}
}

// The cost that a handler reports is counted when it returns or panics, and the rest of the reservation is returned.
func TestStreamedMetersAHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		origin := memstore.NewOrigin(memstore.OriginOptions{})
		var lines strings.Builder
		limiter, err := dataplane.New(dataplane.Config{Origin: origin, Region: "eu"})
		if err == nil {
			err = limiter.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		streams, err := streamed.New(streamed.Config{Reservations: limiter, Logger: slog.New(slog.NewTextHandler(&lines, nil))})
		if err != nil {
			t.Fatal(err)
		}
		most, spends, panics := int64(60), int64(10), false
		s := httplimit.Streamed{Streams: streams, Reserve: func(r *http.Request) (dataplane.ReserveRequest, error) {
			if r.Header.Get("X-Api-Key") == "" {
				return dataplane.ReserveRequest{}, errors.New("who is it?")
			}
			return tokensOf(r.Header.Get("X-Api-Key"), most, 100), nil
		}}
		h := s.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			streamed.MeterOf(r.Context()).Spent(spends)
			if panics {
				panic(http.ErrAbortHandler)
			}
		}))
		ask := func(caller string) (w *httptest.ResponseRecorder) {
			defer synctest.Wait()
			defer func() { _ = recover() }()
			return askAtOnce(t, h, caller)
		}
		if w := ask("ann"); w.Code != http.StatusOK {
			t.Error(w.Code)
		}
		panics, spends = true, 20
		ask("ann")
		panics, most = false, 71
		if w := ask("ann"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Errorf("30 are spent: %d, %v", w.Code, w.Header())
		}
		most, spends = 70, 0
		if w := ask("ann"); w.Code != http.StatusOK {
			t.Errorf("70 are left: %d", w.Code)
		}
		if w := ask(""); w.Code != http.StatusBadRequest {
			t.Errorf("without a key: %d", w.Code)
		}
		most = 101
		if w := ask("bob"); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "" {
			t.Errorf("more than the limit: %d, %v", w.Code, w.Header())
		}
		most = -1
		if w := ask("bob"); w.Code != http.StatusInternalServerError {
			t.Errorf("a bad cost: %d", w.Code)
		}
		if !strings.Contains(lines.String(), "cost is -1") || strings.Count(lines.String(), "\n") != 1 {
			t.Error(lines.String())
		}
		if err := streams.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if w := ask("ann"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("after Stop: %d", w.Code)
		}
		_ = limiter.Stop(context.Background())
	})
}
