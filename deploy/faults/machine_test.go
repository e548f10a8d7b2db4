package faults

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/shared/servers"
)

// lateness is how late the machine was, at worst, at every moment of the last minute: see watchMachine.
type lateness struct {
	mu      sync.Mutex
	samples []sample
	worst   time.Duration
}

type sample struct {
	at   time.Time
	late time.Duration
}

// add records a delay.
func (l *lateness) add(at time.Time, late time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.worst = max(l.worst, late)
	if late > time.Millisecond {
		l.samples = append(l.samples, sample{at, late})
	}
	if len(l.samples) > 10_000 {
		l.samples = slices.DeleteFunc(l.samples, func(s sample) bool { return at.Sub(s.at) > time.Minute })
	}
}

// atWorst returns the longest delay so far.
func (l *lateness) atWorst() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.worst
}

// since returns the delay that the machine may have added to work that began at a moment: three times the worst
// lateness, because a call to Redis through a node waits for a processor at least three times.
func (l *lateness) since(from time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	var worst time.Duration
	for _, s := range l.samples {
		if !s.at.Before(from) {
			worst = max(worst, s.late)
		}
	}
	return 3 * worst
}

// watchMachine measures the machine's part of all times: how late a goroutine of this process is that only reads the
// time, how long Redis takes for a PING, and how long each node takes for a liveness probe. None of these depends on
// limits. It ends with the test.
func watchMachine(t *testing.T, redis *servers.Redis, nodes []*program) *lateness {
	l := &lateness{}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	watch := func(step func() error) {
		go func() {
			l.watch(ctx, step)
			ended <- struct{}{}
		}()
	}
	watch(func() error { return nil })
	watch(func() error { return ping(ctx, redis.Addr()) })
	for _, n := range nodes {
		watch(func() error { return lives(ctx, n.Addrs()[1]) })
	}
	t.Cleanup(func() {
		stop()
		for range 2 + len(nodes) {
			<-ended
		}
	})
	return l
}

const watchEvery = 20 * time.Millisecond

// watch records how late each tick is, with the time of the tick's step. A step fails only if its server was killed.
func (l *lateness) watch(ctx context.Context, step func() error) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case at := <-tick.C:
			err := step()
			now := time.Now()
			if err == nil {
				l.add(now, max(at.Sub(last)-watchEvery, 0)+now.Sub(at))
			}
			last = now
		}
	}
}

func ping(ctx context.Context, redis string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", redis)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	_, err = bufio.NewReader(conn).ReadString('\n')
	return err
}

func lives(ctx context.Context, admin string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/healthz", nil)
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s", answer.Status)
	}
	return nil
}
