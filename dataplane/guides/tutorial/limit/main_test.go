package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/dataplane"
)

func TestAKeyHasFiveRequestsPerHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter, err := dataplane.New(dataplane.Config{})
		if err != nil {
			t.Fatal(err)
		}
		handler, err := api(limiter)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(key string, want int) {
			t.Helper()
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("X-Api-Key", key)
			w := httptest.NewRecorder()
			if handler.ServeHTTP(w, r); w.Code != want {
				t.Errorf("%s gets %d, want %d", key, w.Code, want)
			}
		}
		for range 5 {
			ask("ann", http.StatusOK)
		}
		ask("ann", http.StatusTooManyRequests)
		ask("bob", http.StatusOK)
		time.Sleep(2 * time.Hour) // takes no time
		ask("ann", http.StatusOK)
	})
}
