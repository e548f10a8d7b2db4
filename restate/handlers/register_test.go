package handlers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	restate "github.com/restatedev/sdk-go"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/await"
)

// revision returns how often a service was registered, and the deployment of the newest registration.
func (c *cluster) revision(service string) (revision int64, deployment string) {
	c.t.Helper()
	var s struct {
		Revision     int64  `json:"revision"`
		DeploymentID string `json:"deployment_id"`
	}
	c.admin(http.MethodGet, "/services/"+service, nil, &s)
	return s.Revision, s.DeploymentID
}

// A second process registers its handlers at an address of its own, and ends without unregistering. While both live,
// neither takes the calls from the other. Once the second is gone, the first takes over its new calls, and a call that
// the second had begun. If the second comes back, it gets the calls again.
func TestCallsComeBackFromAProcessThatHasEnded(t *testing.T) {
	t.Parallel()
	var n counter
	begun, free := make(chan struct{}, 9), make(chan struct{})
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job {
		return map[string]Job{"n": n.job(s), "slow": {Run: func(ctx restate.ObjectContext) (Report, error) {
			_, err := controlplane.Do(s.on(ctx), "wait", func(ctx context.Context) (int, error) {
				begun <- struct{}{}
				select {
				case <-free:
				case <-ctx.Done():
				}
				return 1, ctx.Err()
			})
			return Report{}, err
		}}}
	})
	first := c.registrar()
	first.after = 0
	other := &cluster{t: t, restate: c.restate, nodes: c.nodes, http: c.http, client: c.client, options: c.options, jobs: c.jobs}
	other.up()
	t.Cleanup(other.down)
	second := other.registrar()
	second.after = 0
	want := func(r *Registrar, is Registered) {
		t.Helper()
		if did, err := r.Register(t.Context()); err != nil || did != is {
			t.Fatalf("%q, %v; want %q", did, err, is)
		}
	}
	want(second, RegisteredNew)
	revision, deployment := c.revision(CronService)
	for range 2 {
		want(first, RegisteredSame)
		want(second, RegisteredSame)
	}
	if r, d := c.revision(CronService); r != revision || d != deployment {
		t.Errorf("two that live took turns: revision %d of %s, then %d of %s", revision, deployment, r, d)
	}

	if _, err := c.client.Start(t.Context(), "slow", time.Hour); err != nil {
		t.Fatal(err)
	}
	<-begun
	other.down()
	first.after = time.Hour // for as long as a restart may take, nothing happens
	want(first, RegisteredSame)
	first.after = 0
	want(first, RegisteredTakenOver)
	close(free)
	if run, err := c.client.TriggerNow(t.Context(), "n", operator); err != nil || run.Error != "" || n.count() != 1 {
		t.Errorf("a call after it was taken over: %+v, %v, %d runs", run, err, n.count())
	}
	await.True(t, "what the second had begun comes to its end", func() bool { return c.status("slow").Runs > 0 })
	want(first, RegisteredSame)

	other.up()
	want(other.registrar(), RegisteredNew)
	want(first, RegisteredSame)
	if _, d := c.revision(CronService); d == deployment {
		t.Errorf("the second came back, and calls still go to its former deployment %s", d)
	}
}

// The same if the other address had an older build, which has only some of the services.
func TestCallsComeBackFromAnotherBuildThatHasEnded(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	ours := c.registrar()
	if did, err := ours.Register(t.Context()); err != nil || did != RegisteredSame {
		t.Fatalf("%q, %v", did, err)
	}
	old := oldBuild(t, "")
	older := NewRegistrar(c.adminClient(), old.URL, "of the older build")
	if did, err := older.Register(t.Context()); err != nil || did != RegisteredNew {
		t.Fatalf("the older build: %q, %v", did, err)
	}
	old.CloseClientConnections()
	old.Close()
	ours.after = 0
	for _, want := range []Registered{RegisteredTakenOver, RegisteredSame} {
		if did, err := ours.Register(t.Context()); err != nil || did != want {
			t.Fatalf("%q, %v; want %q", did, err, want)
		}
	}
	if run, err := c.client.TriggerNow(t.Context(), "n", operator); err != nil || run.Error != "" {
		t.Errorf("%+v, %v", run, err)
	}
}

// A new build at an address of its own gets the calls. If the earlier build is started again at its address, it gets
// them back, although the new build still answers. Neither takes them again while both live.
func TestAnEarlierBuildThatIsStartedAgainServesAgain(t *testing.T) {
	t.Parallel()
	var n counter
	c := newCluster(t, Options{}, func(s *stepper) map[string]Job { return map[string]Job{"n": n.job(s)} })
	build := oldBuild(t, "")
	t.Cleanup(build.Close)
	later := NewRegistrar(c.adminClient(), build.URL, "of the later build")
	step := func(of string, r *Registrar, want Registered) {
		t.Helper()
		if did, err := r.Register(t.Context()); err != nil || did != want {
			t.Fatalf("%s: %q, %v; want %q", of, did, err, want)
		}
	}
	first := c.registrar()
	step("the earlier build", first, RegisteredSame)
	_, ours := c.revision(CronService)
	step("the later build", later, RegisteredNew)
	step("the earlier build, which goes on", first, RegisteredSame)
	if _, serving := c.revision(CronService); serving == ours {
		t.Fatal("the earlier build has the calls, although the later build was registered")
	}
	again := c.registrar()
	step("the earlier build, started again", again, RegisteredPromoted)
	for range 2 {
		step("the earlier build", again, RegisteredSame)
		step("the later build, which goes on", later, RegisteredSame)
	}
	if run, err := c.client.TriggerNow(t.Context(), "n", operator); err != nil || run.Error != "" || n.count() != 1 {
		t.Errorf("the earlier build does not serve: %+v, %v, %d runs", run, err, n.count())
	}
}

// fixed is an admin API with fixed answers to each GET, and with an answer to each POST.
type fixed struct {
	gets   map[string]string
	post   string
	forced int
}

func (a *fixed) RoundTrip(r *http.Request) (*http.Response, error) {
	body := a.gets[r.URL.Path]
	if r.Method == http.MethodPost {
		var asked registration
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			return nil, err
		}
		if body = a.post; asked.Force && !asked.DryRun {
			a.forced++
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// A later build can lack a service, whose calls then still go to the earlier build, at its second address. A process of
// the earlier build that is started again gets the calls of the later build all the same.
func TestAnEarlierBuildServesAgainAlthoughAnotherProcessOfItHasACall(t *testing.T) {
	const ours = `{"id":"dp_1","uri":"http://ours/","metadata":{"weir-handlers":"f"},
		"services":[{"name":"Dropped","revision":1},{"name":"WeirCron","revision":1}]}`
	api := &fixed{post: ours, gets: map[string]string{"/deployments/dp_1": ours, "/deployments": `{"deployments":[` + ours + `,
		{"id":"dp_2","uri":"http://third/","metadata":{"weir-handlers":"f"},
			"services":[{"name":"Dropped","revision":2},{"name":"WeirCron","revision":2}]},
		{"id":"dp_3","uri":"http://later/","metadata":{"weir-handlers":"g"},"services":[{"name":"WeirCron","revision":3}]}]}`}}
	r := NewRegistrar(NewAdmin(&http.Client{Transport: api}, "http://restate"), "http://ours", "f")
	if did, err := r.Register(t.Context()); err != nil || did != RegisteredPromoted || api.forced != 1 {
		t.Errorf("%q, %v; registered by force %d times", did, err, api.forced)
	}
}

// twoAddresses is the admin API of a Restate whose newest deployment is at another address.
type twoAddresses struct {
	discovers func(context.Context) (status int, body string)
	forced    int
}

func (a *twoAddresses) RoundTrip(r *http.Request) (*http.Response, error) {
	const ours = `{"id":"dp_1","uri":"http://ours/","metadata":{"weir-handlers":"f"},"services":[{"name":"WeirCron","revision":1}]}`
	status, body := http.StatusOK, ours
	if r.URL.Path == "/deployments" && r.Method == http.MethodGet {
		body = `{"deployments":[` + ours + `,{"id":"dp_2","uri":"http://other/","services":[{"name":"WeirCron","revision":2}]}]}`
	}
	if r.Method == http.MethodPost {
		var asked registration
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			return nil, err
		}
		switch {
		case asked.DryRun && asked.URI != "http://other/":
			return nil, fmt.Errorf("%s is discovered", asked.URI)
		case asked.DryRun:
			if status, body = a.discovers(r.Context()); status == 0 {
				return nil, errors.New("connection refused")
			}
		case asked.Force:
			a.forced++
		}
	}
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewBufferString(body)), Request: r}, nil
}

// An address that does not answer, or has other services, loses its calls after takeOverAfter. If it answers in
// between, or Restate does not check it, the wait begins again.
func TestOnlyALongSilenceIsTakenOver(t *testing.T) {
	const gone = `{"message":"connection refused","restate_code":"META0003"}`
	for name, c := range map[string]struct {
		discovers func(seconds int) (int, string)
		want      bool
	}{
		"silent":                          {func(int) (int, string) { return http.StatusInternalServerError, gone }, true},
		"without our services":            {func(int) (int, string) { return http.StatusOK, `{"services":[{"name":"Other"}]}` }, true},
		"not reached, without an answer":  {func(int) (int, string) { return -1, "" }, true},
		"serving":                         {func(int) (int, string) { return http.StatusOK, `{"services":[{"name":"WeirCron"}]}` }, false},
		"refused for another reason":      {func(int) (int, string) { return http.StatusServiceUnavailable, "no leader" }, false},
		"behind a Restate that is silent": {func(int) (int, string) { return 0, "" }, false},
		"silent for less than takeOverAfter": {func(s int) (int, string) {
			if s%18 < 12 {
				return http.StatusInternalServerError, gone
			}
			return http.StatusOK, `{"services":[{"name":"WeirCron"}]}`
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				api := &twoAddresses{discovers: func(ctx context.Context) (int, string) {
					status, body := c.discovers(int(time.Since(begun).Seconds()))
					if status < 0 {
						<-ctx.Done()
						return 0, ""
					}
					return status, body
				}}
				r := NewRegistrar(NewAdmin(&http.Client{Transport: api}, "http://restate"), "http://ours", "f")
				r.settled = true // it runs while the other address is registered
				for taken := false; time.Since(begun) < time.Minute && !taken; {
					did, err := r.Register(t.Context())
					taken = did == RegisteredTakenOver
					if passed := time.Since(begun); taken && (!c.want || passed < takeOverAfter || passed > takeOverAfter+12*time.Second) {
						t.Errorf("taken over after %v", passed)
					}
					if err != nil && !errors.Is(err, controlplane.ErrUnavailable) && !strings.Contains(err.Error(), "no leader") {
						t.Errorf("%q, %v", did, err)
					}
					time.Sleep(6 * time.Second)
				}
				if want := map[bool]int{true: 1}[c.want]; api.forced != want {
					t.Errorf("registered by force %d times, want %d", api.forced, want)
				}
			})
		})
	}
}
