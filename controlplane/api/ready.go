package api

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

const (
	readyTimeout = 3 * time.Second // of one check
	readyFor     = time.Second     // how long the result of a check answers further probes
)

// readiness checks MySQL and Restate for /readyz, which requires no token. For any number of probes, only one check
// runs at a time, and at most one every readyFor.
type readiness struct {
	mysql   func(context.Context) error
	restate func(context.Context) error

	mu    sync.Mutex
	seen  dependencies
	until time.Time     // probes before it get seen
	look  chan struct{} // closed at the end of the running check; nil: no check is running
}

// dependencies has the error of each dependency; nil: it answers.
type dependencies struct{ mysql, restate error }

func (r *readiness) serve(w http.ResponseWriter, req *http.Request) {
	seen, err := r.now(req.Context())
	if err != nil {
		http.Error(w, "the caller is gone", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if seen.mysql != nil || seen.restate != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]string{"mysql": okOr(seen.mysql), "restate": okOr(seen.restate)})
}

// now returns the result of the last check, or waits for the running check. The error is ctx's.
func (r *readiness) now(ctx context.Context) (dependencies, error) {
	r.mu.Lock()
	if time.Now().Before(r.until) {
		defer r.mu.Unlock()
		return r.seen, nil
	}
	look := r.look
	if look == nil {
		look = make(chan struct{})
		r.look = look
		go r.take(context.WithoutCancel(ctx), look) // the first caller can go away while others still wait
	}
	r.mu.Unlock()
	select {
	case <-look:
	case <-ctx.Done():
		return dependencies{}, ctx.Err()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen, nil
}

// take checks both dependencies concurrently, so that a slow dependency does not use up the other's time.
func (r *readiness) take(ctx context.Context, look chan struct{}) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	var seen dependencies
	var both sync.WaitGroup
	both.Go(func() { seen.mysql = r.mysql(ctx) })
	both.Go(func() { seen.restate = r.restate(ctx) })
	both.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen, r.until, r.look = seen, time.Now().Add(readyFor), nil
	close(look)
}

func okOr(err error) string {
	if err != nil {
		return err.Error()
	}
	return "ok"
}
