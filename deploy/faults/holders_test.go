package faults

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/redisorigin"
)

// leaseKey is a key with a concurrency limit.
type leaseKey struct {
	Name    string
	Limit   int
	TTL     time.Duration
	Holders int // in each process that embeds a limiter
}

func (k *leaseKey) request() dataplane.ConcurrencyRequest {
	return dataplane.ConcurrencyRequest{Workspace: "acme", Namespace: "leases", Identifier: k.Name, Limit: int64(k.Limit),
		TTL: k.TTL, Holder: "churn"}
}

// holders is a process that embeds a limiter. It reports its leases to its parent on stdout, a line for each:
//
//	in NUMBER KEY TIME     it has a lease since then
//	at TIME NUMBER…        these leases have not ended at that time
//	out NUMBER TIME        the lease has not ended at that time, and is released now
//	no                     a lease was denied
//	lost NUMBER            the lease has ended
type holders struct {
	Name, Redis string
	Keys        []leaseKey

	// Own is a key of which this process takes all leases, and keeps them until it is killed.
	Own leaseKey

	limiter *dataplane.Limiter
	mu      sync.Mutex
	number  int
	leases  map[int]dataplane.Lease
}

// main runs the holders until the process is killed, or its parent has ended.
func (h *holders) main() error {
	origin, err := redisorigin.Open([]string{"redis://" + h.Redis}, redisorigin.Options{})
	if err != nil {
		return err
	}
	h.limiter, err = dataplane.New(dataplane.Config{Region: "eu", NodeID: h.Name, Origin: origin})
	if err != nil {
		return err
	}
	h.leases = make(map[int]dataplane.Lease)
	ctx := context.Background()
	if err := h.limiter.Start(ctx); err != nil {
		return err
	}
	go h.confirm()
	for range h.Own.Limit {
		go func() {
			for {
				h.hold(ctx, &h.Own, 0, time.Hour)
			}
		}()
	}
	for i := range h.Keys {
		for n := range h.Keys[i].Holders {
			go func() {
				for {
					h.hold(ctx, &h.Keys[i], n, randomStay(h.Keys[i].TTL))
					pause(ctx, rand.N(60*time.Millisecond))
				}
			}()
		}
	}
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// randomStay returns a short or a long time, so that some leases change hands often, and others can be held during many
// faults.
func randomStay(ttl time.Duration) time.Duration {
	if rand.N(2) == 0 {
		return rand.N(3 * ttl)
	}
	return rand.N(ttl / 8)
}

// say writes a line to the parent; mu must be held.
func (h *holders) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// hold takes a lease, and releases it after some time. Of three holders, one renews its lease itself, and one does not
// wait for it.
func (h *holders) hold(ctx context.Context, key *leaseKey, n int, staying time.Duration) {
	r := key.request()
	r.RenewedByHolder = n%3 == 1
	take := h.limiter.AcquireWait
	if n%3 == 2 {
		take = h.limiter.Acquire
	}
	within, cancel := context.WithTimeout(ctx, time.Second)
	lease, d := take(within, r)
	cancel()
	if !d.Allowed {
		h.mu.Lock()
		h.say("no")
		h.mu.Unlock()
		pause(ctx, d.RetryAfter/4)
		return
	}
	number := h.enters(key, lease)
	leave := time.NewTimer(staying)
	defer leave.Stop()
	renew := time.NewTicker(key.TTL / 3)
	defer renew.Stop()
	for {
		select {
		case <-renew.C:
			if r.RenewedByHolder && lease.Renew(key.TTL) != nil {
				h.leaves(number, lease)
				return
			}
			continue
		case <-lease.Done():
		case <-leave.C:
		}
		h.leaves(number, lease)
		return
	}
}

func (h *holders) enters(key *leaseKey, lease dataplane.Lease) (number int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.number++
	at := time.Now().UnixNano()
	if lease.Err() == nil {
		h.leases[h.number] = lease
		h.say("in %d %s %d", h.number, key.Name, at)
	}
	return h.number
}

// leaves reports the release of a lease before it is made.
func (h *holders) leaves(number int, lease dataplane.Lease) {
	h.mu.Lock()
	if _, is := h.leases[number]; is {
		delete(h.leases, number)
		if at := time.Now().UnixNano(); lease.Err() == nil {
			h.say("out %d %d", number, at)
		} else {
			h.say("lost %d", number)
		}
	}
	h.mu.Unlock()
	lease.Release()
}

// confirm reports continuously which leases have not ended.
func (h *holders) confirm() {
	for range time.Tick(50 * time.Millisecond) {
		h.mu.Lock()
		line := []byte("at ")
		line = strconv.AppendInt(line, time.Now().UnixNano(), 10)
		for number, lease := range h.leases {
			if lease.Err() == nil {
				line = strconv.AppendInt(append(line, ' '), int64(number), 10)
			}
		}
		h.say("%s", line)
		h.mu.Unlock()
	}
}

// holdersProcess is such a process, as its parent has it.
type holdersProcess struct {
	cmd   *exec.Cmd
	own   leaseKey
	owns  atomic.Int64 // reported leases of its own key
	ended chan struct{}
	err   error // of the reported lines
}

// startHolders starts a process, and passes its reports to a referee.
func startHolders(t *testing.T, h *holders, r *referee) *holdersProcess {
	t.Helper()
	cmd, out := startChild(t, holdersRole, h)
	p := &holdersProcess{cmd: cmd, own: h.Own, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = p.follow(out, h.Name, r)
	}()
	return p
}

// kill ends the process with SIGKILL, and returns the moment before.
func (p *holdersProcess) kill() (at time.Time, err error) {
	at = time.Now()
	err = p.cmd.Process.Kill()
	<-p.ended // all of its reports have been read
	err = errors.Join(err, p.err)
	_ = p.cmd.Wait() // killed
	if state := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !state.Signaled() {
		err = errors.Join(err, fmt.Errorf("a process of holders ended by itself: %v", p.cmd.ProcessState))
	}
	return at, err
}

func (p *holdersProcess) freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *holdersProcess) thaw() error   { return p.cmd.Process.Signal(syscall.SIGCONT) }

// follow reads the process's reports until it ends. It ignores a line that is cut short.
func (p *holdersProcess) follow(out io.Reader, name string, r *referee) error {
	stays := make(map[string]*stay)
	own := make(map[string]bool)
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return nil //nolint:nilerr // it was killed
		}
		words := strings.Fields(line)
		number := func(i int) int64 {
			n, bad := strconv.ParseInt(words[i], 10, 64)
			err = errors.Join(err, bad)
			return n
		}
		switch {
		case len(words) == 4 && words[0] == "in":
			r.count("grants to processes")
			stays[words[1]] = r.enters(words[2], name+" "+words[1], number(3))
			if words[2] == p.own.Name {
				own[words[1]] = true
			}
		case len(words) >= 2 && words[0] == "at":
			for _, lease := range words[2:] {
				r.held(stays[lease], number(1))
			}
		case len(words) == 3 && words[0] == "out":
			r.held(stays[words[1]], number(2))
			delete(stays, words[1])
			delete(own, words[1])
		case slices.Equal(words, []string{"no"}):
			r.count("refusals to processes")
		case len(words) == 2 && words[0] == "lost":
			r.count("leases lost by processes")
			delete(stays, words[1])
			delete(own, words[1])
		default:
			return fmt.Errorf("%s tells %q", name, line)
		}
		if p.owns.Store(int64(len(own))); err != nil {
			return fmt.Errorf("%s tells %q: %w", name, line, err)
		}
	}
}
