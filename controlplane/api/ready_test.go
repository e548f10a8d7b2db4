package api

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// "For any number of probes, only one check runs at a time, and at most one every readyFor."
func TestProbesShareOneLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mysql, restate atomic.Int64
		r := &readiness{
			mysql:   func(context.Context) error { <-time.After(100 * time.Millisecond); mysql.Add(1); return nil },
			restate: func(context.Context) error { restate.Add(1); return errors.New("restate is down") },
		}
		for second := range int64(3) {
			var probes sync.WaitGroup
			for range 1000 {
				probes.Go(func() {
					if code, body := probe(t.Context(), r); code != http.StatusServiceUnavailable || body != `{"mysql":"ok","restate":"restate is down"}`+"\n" {
						t.Errorf("%d %s", code, body)
					}
				})
			}
			probes.Wait()
			if mysql.Load() != second+1 || restate.Load() != second+1 {
				t.Fatalf("1,000 probes at once made %d and %d looks, want %d", mysql.Load(), restate.Load(), second+1)
			}
			<-time.After(readyFor)
		}
	})
}

// A look at a MySQL that hangs ends after readyTimeout, and takes nothing away from Restate.
func TestALookIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &readiness{
			mysql:   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
			restate: func(ctx context.Context) error { return ctx.Err() },
		}
		begun := time.Now()
		if code, body := probe(t.Context(), r); code != http.StatusServiceUnavailable || !strings.Contains(body, "deadline") || !strings.Contains(body, `"restate":"ok"`) {
			t.Errorf("%d %s", code, body)
		}
		if took := time.Since(begun); took != readyTimeout {
			t.Errorf("after %v", took)
		}
		gone, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		<-time.After(readyFor)
		if code, _ := probe(gone, r); code != http.StatusServiceUnavailable {
			t.Errorf("a prober that is gone: %d", code)
		}
		<-time.After(readyTimeout) // its check continues for the probes that wait with it
	})
}

func probe(ctx context.Context, r *readiness) (code int, body string) {
	w := httptest.NewRecorder()
	r.serve(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/readyz", nil))
	return w.Code, w.Body.String()
}
