package handlers

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/controlplane/retire"
	"github.com/weirhq/weir/restate/orderkey"
)

// scripted is a Restate with scripted answers, without a socket.
type scripted struct {
	answer func(path string) (code int, body string) // 0: never
	known  bool                                      // the handlers are registered, so errors are their own

	mu    sync.Mutex
	asked map[string]int
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	path := r.URL.Path
	if strings.HasPrefix(path, "/"+OrdersService+"/") {
		var o orderkey.Order
		if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
			return nil, err
		}
		if err := testKeys.Check(&o, time.Now()); err != nil {
			return nil, err
		}
		path = "/" + o.Service + "/" + o.Key + "/" + o.Handler
	}
	s.mu.Lock()
	s.asked[path]++
	s.mu.Unlock()
	code, body := s.answer(path)
	if code == 0 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	header := http.Header{"Content-Type": {"application/json"}}
	if s.known && code >= http.StatusBadRequest {
		header.Set("X-Restate-Error-Source", "invocation")
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// "It checks every job, every retirement and the rollout concurrently": the error names each of them that failed, and
// the one that got no answer.
func TestOneBrokenJobStarvesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		restate := &scripted{asked: map[string]int{}, answer: func(path string) (int, string) {
			switch path {
			case "/deployments":
				return http.StatusCreated, `{"id":"dp_1"}`
			case "/" + CronService + "/hangs/Status":
				return 0, ""
			}
			return http.StatusInternalServerError, `{"message":"broken: ` + path + `"}`
		}}
		client := &http.Client{Transport: restate}
		k := &Keeper{
			Registrar: NewRegistrar(NewAdmin(client, "http://restate"), "http://handlers", "f"),
			Client:    NewClient(client, testKeys, "http://restate"),
			Jobs:      map[string]time.Duration{"hangs": time.Minute, "breaks": time.Minute, "breaks-too": time.Minute},
			Retiring:  []string{retire.Blocklist}, Metrics: controlplane.NewMetrics(), Log: slog.New(slog.DiscardHandler),
		}
		begun := time.Now()
		err := k.Once(t.Context())
		if took := time.Since(begun); took > keepTimeout {
			t.Errorf("the round took %v", took)
		}
		for _, path := range []string{
			"/" + CronService + "/breaks/Status", "/" + CronService + "/breaks-too/Status", "/" + CronService + "/hangs/Status",
			"/" + RetirementService + "/" + retire.Blocklist + "/Status", "/" + RolloutsService + "/" + rolloutScope + "/Standing",
		} {
			if restate.asked[path] == 0 {
				t.Errorf("%s was not asked; asked were %q", path, slices.Sorted(maps.Keys(restate.asked)))
			}
			if !strings.Contains(path, "hangs") && !strings.Contains(err.Error(), "broken: "+path) {
				t.Errorf("the error does not name %s: %v", path, err)
			}
		}
		if !errors.Is(err, controlplane.ErrUnavailable) || !strings.Contains(err.Error(), "status of job hangs") {
			t.Errorf("error %v", err)
		}
	})
}
