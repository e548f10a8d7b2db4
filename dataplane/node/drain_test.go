package node

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/gen/proto/weir/v1/weirv1connect"
)

// The order of a drain: the node reports that it should get no more calls, serves for DrainDelay, waits for the call in
// flight, and only then stops the limiter.
func TestDrainInOrder(t *testing.T) {
	in, out := make(chan struct{}, 1), make(chan struct{})
	answered, stopped := make(chan error), make(chan struct{})
	h := prepare(t, scripted{
		allow: func(context.Context, dataplane.Request) dataplane.Decision {
			in <- struct{}{}
			<-out
			return dataplane.Decision{Allowed: true}
		},
		stop: func(context.Context) error { close(stopped); return nil },
	}, func(c *Config) { c.DrainDelay = time.Hour })
	delay, delayed := make(chan time.Duration, 1), make(chan struct{})
	h.pause = func(d time.Duration) { delay <- d; <-delayed }
	h.serve(t)

	ask := func(d door) {
		client := d.open(t, h)
		go func() {
			_, err := client.Limit(t.Context(), connect.NewRequest(askedOnTheWire))
			answered <- err
		}()
		<-in
	}
	ask(doors[0])
	ask(doors[5])
	drained := make(chan error)
	go func() { drained <- h.Drain() }()

	await.True(t, "readiness flips", func() bool {
		status, answer := get(t, h.adminBase+"/readyz")
		return status == 503 && answer == "draining\n"
	})
	if status, _ := get(t, h.adminBase+"/healthz"); status != 200 {
		t.Error("a draining node is alive")
	}
	if response, err := h.ready.Check(t.Context(), &grpchealth.CheckRequest{}); err != nil || response.Status != grpchealth.StatusNotServing {
		t.Errorf("grpc.health.v1 says %v, %v", response, err)
	}
	ask(doors[4]) // a call that comes during the delay is served
	if d := <-delay; d != time.Hour {
		t.Errorf("a delay of %v, want an hour", d)
	}
	close(delayed)

	await.True(t, "no further connection is taken", func() bool {
		conn, err := net.Dial("tcp", h.Addr().String())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	select {
	case <-stopped:
		t.Fatal("the limiter was stopped with calls in flight")
	case err := <-drained:
		t.Fatalf("drained with calls in flight: %v", err)
	default:
	}
	close(out)
	for range 3 {
		if err := <-answered; err != nil {
			t.Errorf("a call in flight: %v", err)
		}
	}
	<-stopped
	if err := <-drained; err != nil {
		t.Errorf("drain: %v", err)
	}
}

// A call that never ends gets half of DrainTimeout; the limiter always gets its half.
func TestDrainCutsOffWhatNeverEnds(t *testing.T) {
	in := make(chan struct{})
	var deadline time.Time
	cut := false
	h := start(t, scripted{
		allow: func(ctx context.Context, _ dataplane.Request) dataplane.Decision {
			in <- struct{}{}
			<-ctx.Done()
			<-time.After(50 * time.Millisecond) // it takes its time to notice
			cut = true
			return dataplane.Decision{}
		},
		stop: func(ctx context.Context) error {
			deadline, _ = ctx.Deadline()
			if !cut {
				t.Error("the limiter was stopped before the call had returned")
			}
			return nil
		},
	}, func(c *Config) { c.DrainTimeout = time.Second })
	answered := make(chan error)
	go func() {
		_, err := doors[0].open(t, h).Limit(t.Context(), connect.NewRequest(askedOnTheWire))
		answered <- err
	}()
	<-in
	began := time.Now()
	if err := h.Drain(); err == nil || !strings.Contains(err.Error(), "cut off") {
		t.Errorf("drain: %v", err)
	}
	if err := <-answered; err == nil {
		t.Error("the call that was cut off was answered")
	}
	if whole := deadline.Sub(began); whole < time.Second {
		t.Errorf("the limiter had until %v after the drain began, want 1 s: calls may take half of it", whole)
	}
}

// Drain reports the cost that the limiter could not send.
func TestDrainReportsTheLimiter(t *testing.T) {
	h := start(t, scripted{stop: func(context.Context) error { return errors.New("12 of cost unsent") }})
	if err := h.Drain(); err == nil || err.Error() != "stop the limiter: 12 of cost unsent" {
		t.Errorf("drain: %v", err)
	}
}

// A taken port is an error that names it and its option, and leaves no port taken behind it.
func TestStartOnATakenPort(t *testing.T) {
	first := start(t, scripted{})
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := free.Addr().String()
	_ = free.Close()

	second := prepare(t, scripted{}, func(c *Config) { c.Listen, c.AdminListen = address, first.AdminAddr().String() })
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "admin-listen: listen tcp "+first.AdminAddr().String()) {
		t.Errorf("start: %v", err)
	}
	third := prepare(t, scripted{}, func(c *Config) { c.GRPCListen = first.AdminAddr().String() })
	if err := third.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "grpc-listen: listen tcp ") {
		t.Errorf("start: %v", err)
	}
	again, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the service's port is still taken: %v", err)
	}
	_ = again.Close()
}

// A port that stops serving by itself ends Wait.
func TestWaitReportsABrokenPort(t *testing.T) {
	h := start(t, scripted{})
	_ = h.calls.listener.Close()
	if err := h.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "listen: serve on 127.0.0.1:") {
		t.Errorf("wait: %v", err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := h.Wait(ended); err != nil {
		t.Errorf("wait after its context ended: %v", err)
	}
}

// A watcher of health learns that the node is leaving, and does not keep it from
// doing so; nothing that was decided is reported as cut off.
func TestDrainDoesNotWaitForWatchers(t *testing.T) {
	h := start(t, scripted{})
	conn := dial(t, h.GRPCAddr().String())
	watch, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{Service: weirv1connect.RateLimitServiceName})
	if err != nil {
		t.Fatal(err)
	}
	if now, err := watch.Recv(); err != nil || now.Status != healthv1.HealthCheckResponse_SERVING {
		t.Fatalf("at first: %v, %v", now, err)
	}
	drained := make(chan error)
	go func() { drained <- h.Drain() }()
	if now, err := watch.Recv(); err != nil || now.Status != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("while draining: %v, %v", now, err)
	}
	if err := <-drained; err != nil {
		t.Errorf("drain: %v", err)
	}
	if _, err := watch.Recv(); err == nil {
		t.Error("the watch outlives the node")
	}
}
