package faults

import (
	"bufio"
	"context"
	"encoding/json"
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

// holdersEnv has what a process of its own needs to be holders of leases: the test's program runs as them where it is
// set.
const holdersEnv = "WEIR_FAULTS_HOLDERS"

// holders are a process that embeds a limiter. It tells its parent of leases on stdout, a line each:
//
//	in NUMBER KEY TIME     it has a lease since then
//	at TIME NUMBER…        these have not ended at that time
//	out NUMBER TIME        it has not ended at that time, and is released now
//	no                     it was refused one
//	lost NUMBER            it has ended
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

// randomStay is short or long: leases that change hands often, and leases that are held in whatever happens.
func randomStay(ttl time.Duration) time.Duration {
	if rand.N(2) == 0 {
		return rand.N(3 * ttl)
	}
	return rand.N(ttl / 8)
}

// say tells the parent something, under mu.
func (h *holders) say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

// hold takes a lease, and releases it after some time. Of three holders one renews it by itself, and one does not wait
// for it.
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

// leaves tells that a lease is released before it is.
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

// confirm tells all the time which leases have not ended.
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

// beHolders is the whole program where it is to be holders.
func beHolders(spec string) int {
	var h holders
	err := json.Unmarshal([]byte(spec), &h)
	if err == nil {
		err = h.main()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// holdersProcess is such a process, as its parent has it.
type holdersProcess struct {
	cmd   *exec.Cmd
	own   leaseKey
	owns  atomic.Int64 // the leases of its own key that it has told of
	ended chan struct{}
	err   error // of what it has told
}

// startHolders starts a process, and tells a referee what it tells.
func startHolders(t *testing.T, h *holders, r *referee) *holdersProcess {
	t.Helper()
	spec, err := json.Marshal(h)
	must(t, err)
	program, err := os.Executable()
	must(t, err)
	p := &holdersProcess{cmd: exec.Command(program), own: h.Own, ended: make(chan struct{})}
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), holdersEnv+"="+string(spec), raceEnds), os.Stderr
	_, err = p.cmd.StdinPipe() // ends with this process, and so do the holders
	must(t, err)
	out, err := p.cmd.StdoutPipe()
	must(t, err)
	must(t, p.cmd.Start())
	go func() {
		defer close(p.ended)
		p.err = p.follow(out, h.Name, r)
	}()
	return p
}

// raceEnds has a process end where the race detector finds something: its parent notices that.
const raceEnds = "GORACE=halt_on_error=1"

// kill ends the process with SIGKILL, and returns the moment before.
func (p *holdersProcess) kill() (at time.Time, err error) {
	at = time.Now()
	err = p.cmd.Process.Kill()
	<-p.ended // all that it has told is read
	err = errors.Join(err, p.err)
	_ = p.cmd.Wait() // killed
	if state := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !state.Signaled() {
		err = errors.Join(err, fmt.Errorf("a process of holders ended by itself: %v", p.cmd.ProcessState))
	}
	return at, err
}

func (p *holdersProcess) freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *holdersProcess) thaw() error   { return p.cmd.Process.Signal(syscall.SIGCONT) }

// follow reads what the process tells, until it ends. A line that its end has cut short is none.
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
