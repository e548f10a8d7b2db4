package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/await"
)

// listening is an open stream.
type listening struct {
	t    testing.TB
	res  *http.Response
	scan *bufio.Scanner
	stop context.CancelFunc
}

func (b *browser) listen(query string) *listening {
	b.w.t.Helper()
	r := b.request(http.MethodGet, "/console/events?"+query, nil)
	ctx, stop := context.WithTimeout(b.w.t.Context(), time.Minute)
	b.w.t.Cleanup(stop)
	res, err := b.client.Do(r.WithContext(ctx))
	if err != nil {
		b.w.t.Fatal(err)
	}
	b.w.t.Cleanup(func() { _ = res.Body.Close() })
	scan := bufio.NewScanner(res.Body)
	scan.Buffer(nil, 4<<20)
	return &listening{b.w.t, res, scan, stop}
}

// next returns the next event; ok is false at the stream's end.
func (l *listening) next() (event, data string, ok bool) {
	for l.scan.Scan() {
		line := l.scan.Text()
		if name, found := strings.CutPrefix(line, "event: "); found {
			event = name
		}
		if text, found := strings.CutPrefix(line, "data: "); found {
			return event, text, true
		}
	}
	return "", "", false
}

func (w *world) streaming() int { return int(w.console.live.Load()) }

// The fleet's stream begins with its history, and brings figures with each beat.
func TestTheFleetsStream(t *testing.T) {
	w := start(t, false)
	w.set(func() { w.fleet = populous(2, 3, time.Now()) })
	l := w.as("viewer").listen("topic=fleet")
	if kind := l.res.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("it is %q", kind)
	}
	if event, _, _ := l.next(); event != "history" {
		t.Errorf("it begins with %q", event)
	}
	var first, second live
	for _, into := range []*live{&first, &second} {
		event, data, ok := l.next()
		if err := json.Unmarshal([]byte(data), into); !ok || event != "fleet" || err != nil {
			t.Fatalf("%q %q %v", event, data, err)
		}
		w.set(func() {
			for i := range w.fleet.Nodes {
				w.fleet.Nodes[i].SeenAt = w.fleet.Nodes[i].SeenAt.Add(2 * time.Second)
				w.fleet.Nodes[i].Health.AllowedTotal += 20
			}
		})
	}
	if second.Total.Allowed != 60 || second.Regions["region-01"].Allowed != 30 || second.At <= first.At {
		t.Errorf("%+v, then %+v", first, second)
	}
}

// Other streams send an event when data has changed. An outage is a change.
func TestAStreamOfChanges(t *testing.T) {
	w := start(t, false)
	l := w.as("viewer").listen("topic=jobs")
	if event, _, _ := l.next(); event != "watching" {
		t.Errorf("it begins with %q", event)
	}
	w.set(func() { w.cleanup.Rows++ })
	if event, _, _ := l.next(); event != "changed" {
		t.Errorf("rows were deleted: %q", event)
	}
	w.set(func() { w.down = fmt.Errorf("%w: Restate does not answer", controlplane.ErrUnavailable) })
	if event, _, _ := l.next(); event != "changed" {
		t.Errorf("Restate has gone: %q", event)
	}
}

// "Streams end": with their reader, and with the process, and leave nothing behind (see
// TestMain). Their number is bounded.
func TestStreamsEnd(t *testing.T) {
	w := start(t, false)
	b := w.as("viewer")
	var open []*listening
	for range streamsMax {
		open = append(open, b.listen("topic=fleet"))
	}
	await.True(t, "all are open", func() bool { return w.streaming() == streamsMax })
	if a := b.get("/console/events?topic=fleet"); a.status != http.StatusServiceUnavailable || a.header.Get("Retry-After") == "" {
		t.Errorf("one too many: %d", a.status)
	}
	for _, l := range open[1:] {
		l.stop()
	}
	await.True(t, "readers have gone, and so have their streams", func() bool { return w.streaming() == 1 })
	if a := b.get("/console/events?topic=none"); a.status != http.StatusOK || w.streaming() != 1 {
		t.Errorf("no such topic: %d, %d streams", a.status, w.streaming())
	}
	w.stop()
	for {
		if _, _, ok := open[0].next(); !ok {
			break
		}
	}
	await.True(t, "the process has drained", func() bool { return w.streaming() == 0 })
}

// A stream continues as long as its reader's session and token are valid.
func TestStreamsAreVouchedFor(t *testing.T) {
	w := start(t, false)
	b := w.as("viewer")
	r := b.request(http.MethodGet, "/console/", nil)
	here, err := url.Parse(w.url)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(b.client.Jar.Cookies(here)[0])
	v, err := w.console.viewer(r)
	if err != nil || !w.console.inForce(v.ctx, v) {
		t.Fatalf("%v", err)
	}
	w.set(func() { w.revoked = true })
	if w.console.inForce(v.ctx, v) {
		t.Error("the token is revoked")
	}
	w.set(func() { w.revoked, w.down = false, fmt.Errorf("%w: MySQL", controlplane.ErrUnavailable) })
	if !w.console.inForce(v.ctx, v) {
		t.Error("an outage ends what was in force")
	}
	w.set(func() { w.down = nil })
	for _, topic := range []string{"fleet", "jobs"} {
		w.set(func() { w.revoked = false })
		l := w.as("viewer").listen("topic=" + topic)
		if _, _, ok := l.next(); !ok {
			t.Fatal("it does not begin")
		}
		w.set(func() { w.revoked = true })
		for ok := true; ok; { // until it ends: its reader does nothing for it
			_, _, ok = l.next()
		}
	}
	w.set(func() { w.revoked, w.refused = false, errors.New("the authority is no longer accepted") })
	if w.console.inForce(v.ctx, v) {
		t.Error("the certificate is no longer accepted")
	}
	w.set(func() { w.refused = nil })
	w.console.sessions.End(v.session)
	if w.console.inForce(v.ctx, v) {
		t.Error("the session has ended")
	}
}
