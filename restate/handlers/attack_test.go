package handlers

import (
	"bytes"
	"crypto/ed25519"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/attack"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/bounded"
)

// attackBytesMax bounds how much an address can add to the memory of an idle process.
const attackBytesMax = 300 << 20

// Connections that send no valid request of Restate use little memory, and do not keep out Restate's own connections.
func TestFloodsOfFrames(t *testing.T) {
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for signed, key := range map[string]string{"signed": "publickeyv1_" + base58(public), "unsigned": ""} {
		for name, flood := range attack.Floods("/invoke/WeirCron/Status", invocationType) {
			if signed == "signed" && !strings.Contains(name, "streams") {
				continue // it makes no request that could be signed
			}
			t.Run(signed+"/"+name, func(t *testing.T) {
				address := serveEndpoint(t, Options{IdentityKey: key})
				during := attack.Watch()
				conns := attack.Send(t, address, usual.connections/4, flood)
				for name, c := range overBoth(t) {
					await.NoError(t, "another address is answered by "+name, func() error {
						res, err := c.Get("http://" + address + "/health")
						if err == nil {
							_ = res.Body.Close()
						}
						return err
					})
				}
				attack.Close(conns)
				during.Small(t, attackBytesMax)
			})
		}
	}
}

// Every unsigned request is counted, and only a few are logged.
func TestUnsignedRequestsFillNoLog(t *testing.T) {
	t.Parallel()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	var out await.Log
	metrics := controlplane.NewMetrics()
	e, err := NewEndpoint(Options{Log: slog.New(slog.NewTextHandler(&out, nil)), Metrics: metrics,
		IdentityKey: "publickeyv1_" + base58(public)})
	if err != nil {
		t.Fatal(err)
	}
	const requests = 500
	for range requests {
		unsigned := httptest.NewRequest(http.MethodPost, "/invoke/WeirCron/Status", nil)
		e.server.Handler.ServeHTTP(httptest.NewRecorder(), unsigned)
	}
	if lines := strings.Count(out.String(), "\n"); lines < 1 || lines > requests/10 {
		t.Errorf("%d lines in the log of %d requests", lines, requests)
	}
	wantRefused(t, metrics, map[bounded.Bound]int{controlplane.BoundIdentity: requests})
}

// Each rejection is counted by its bound.
func TestRefusalsAreCounted(t *testing.T) {
	t.Parallel()
	metrics := controlplane.NewMetrics()
	l := roomy()
	l.journalBytes, l.allBytes, l.begun = 10, 5, 1
	read := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = new(bytes.Buffer).ReadFrom(r.Body)
		_, _ = new(bytes.Buffer).ReadFrom(r.Body) // does not count again
	})
	handler := private(bound(read, l, metrics.HandlersRefused), nil, metrics.HandlersRefused)
	send := func(body, host, origin string) {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/invoke/a/b", strings.NewReader(body))
		r.Host = host
		if origin != "" {
			r.Header.Set("Origin", origin)
		}
		handler.ServeHTTP(httptest.NewRecorder(), r)
	}
	send("01234", "localhost", "")
	send("0123456789a", "localhost", "")
	send("012345", "localhost", "")
	send("0", "evil.example", "")
	send("0", "localhost", "http://evil.example")
	l.invocations = 0
	full := bound(read, l, metrics.HandlersRefused)
	full.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
	wantRefused(t, metrics, map[bounded.Bound]int{bounded.BoundBody: 1, bounded.BoundMemory: 1, bounded.BoundHost: 2,
		bounded.BoundSlots: 1})
}

// A late journal is counted.
func TestLateJournalsAreCounted(t *testing.T) {
	t.Parallel()
	metrics := controlplane.NewMetrics()
	l := roomy()
	l.arrival = 50 * time.Millisecond
	ended := make(chan struct{}, 1)
	handler := bound(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = new(bytes.Buffer).ReadFrom(r.Body)
		ended <- struct{}{}
	}), l, metrics.HandlersRefused)
	s := newServer(handler, slog.New(slog.DiscardHandler))
	listener := listen(t, "")
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(func() { _ = s.Close() })
	late := func() int { return refusals(t, metrics)[string(bounded.BoundTime)] }
	for name, c := range overBoth(t) {
		before := late()
		// If a busy machine also misses the time to answer, another 50 ms later, HTTP/2 breaks the stream off instead.
		await.True(t, name+": it is counted", func() bool {
			slowly(t, c, "http://"+listener.Addr().String())
			<-ended
			return late() > before
		})
		if got := late() - before; got != 1 {
			t.Errorf("%s: counted %d times", name, got)
		}
	}
}

// A rejection has twice the time of a journal's arrival, and the response of a running invocation has the time of an
// attempt. Otherwise a caller could leave a rejection unread for an hour.
func TestRefusalsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	l := roomy()
	l.arrival, l.attempt = time.Minute, time.Hour
	for status, most := range map[int]time.Duration{
		http.StatusUnauthorized: 2 * time.Minute,
		http.StatusOK:           time.Hour + stepMax,
	} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) })
		handler := bound(answers, l, func(bounded.Bound) {})
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/invoke/a/b", nil))
		if left := time.Until(w.write); left > most || left < most-time.Minute {
			t.Errorf("an answer %d may take %v, want %v", status, left, most)
		}
	}
}

// "arrived … reports whether their input has already ended": Shutdown also hands over an invocation whose journal
// arrives after the input of the others has ended. Requests that have left are not kept.
func TestAJournalThatComesAfterTheHandOver(t *testing.T) {
	t.Parallel()
	b := newBounds(roomy(), func(bounded.Bound) {})
	for _, over := range []bool{false, true} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		b.handler(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) {
			answer.WriteHeader(http.StatusOK)
			if ended := time.Until(w.read) < 0; ended != over {
				t.Errorf("its input is over: %v, want %v", ended, over)
			}
			if b.suspend(); time.Until(w.read) >= 0 {
				t.Error("an invocation that runs waits for input after the hand-over")
			}
		})).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/invoke/a/b", nil))
		if len(b.run) != 0 {
			t.Errorf("%d run when all have left", len(b.run))
		}
	}
}

type deadlines struct {
	*httptest.ResponseRecorder
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error {
	d.read = t
	return nil
}

func (d *deadlines) SetWriteDeadline(t time.Time) error {
	d.write = t
	return nil
}

func refusals(t *testing.T, metrics *controlplane.Metrics) map[string]int {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "weir_handlers_refused_total" {
				found[m.GetLabel()[0].GetValue()] = int(m.GetCounter().GetValue())
			}
		}
	}
	return found
}

func wantRefused(t *testing.T, metrics *controlplane.Metrics, want map[bounded.Bound]int) {
	t.Helper()
	found := refusals(t, metrics)
	for _, b := range controlplane.HandlersBounds {
		if n, ok := found[string(b)]; !ok || n != want[b] {
			t.Errorf("weir_handlers_refused_total{bound=%q} is %d, want %d", b, n, want[b])
		}
	}
}

// At most as many requests can be cut off without having noticed as can arrive, because the SDK uses memory for each.
func TestArrivalsThatAreCutOffAreBounded(t *testing.T) {
	t.Parallel()
	l := roomy()
	l.arriving = 1
	metrics := controlplane.NewMetrics()
	entered, leave := make(chan struct{}), make(chan struct{})
	handler := bound(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/third" {
			return
		}
		entered <- struct{}{}
		<-leave
	}), l, metrics.HandlersRefused)
	ended := make(chan struct{})
	begin := func() {
		go func() {
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
			ended <- struct{}{}
		}()
		<-entered
	}
	begin()
	begin() // cuts off the first
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/third", nil))
	if w.Code != http.StatusServiceUnavailable {
		t.Errorf("a third one: %d", w.Code)
	}
	leave <- struct{}{}
	leave <- struct{}{}
	<-ended
	<-ended
	for range 2 {
		begin()
	}
	close(leave)
	<-ended
	<-ended
	wantRefused(t, metrics, map[bounded.Bound]int{bounded.BoundSlots: 1})
}
