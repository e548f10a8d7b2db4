package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Profile is how a way through the network behaves.
type Profile struct {
	Delay   time.Duration // round trip, 2 µs at least: what is sent and what comes of it are never one moment
	Jitter  time.Duration // added to it, 0 to this, evenly
	Loss    float64       // share of calls that get lost, request or reply at even odds
	Refused float64       // share of calls that fail at once, for certain
}

var (
	errRefused = errors.New("network: connection refused")
	errLost    = errors.New("network: no answer")
)

// hangMax is how long a call without a deadline waits for an answer that will not come.
const hangMax = time.Minute

// link is one node's way to one server. The draws for each kind of call come from a stream
// of their own: loops that wake in the same moment change nothing for each other.
type link struct {
	mu      sync.Mutex
	profile Profile
	stream  func(op string) *rand.Rand
	streams map[string]*rand.Rand
	cut     bool // partition: nothing arrives, nothing is refused
	dead    bool // the node was killed
	down    bool // whoever calls is refused
	parts   map[int]part
	calls   sync.WaitGroup // carried ones that are on their way, those included whose callers have gone
}

// part is what is wrong with one shard of the server, behind a link that is not.
type part struct {
	cut, down bool    // as of the link
	mute      float64 // share of replies that get lost
}

// voyage is one call.
type voyage struct {
	there, back time.Duration
	sunk        bool // the request never arrives
	mute        bool // the reply never arrives
	calls       *sync.WaitGroup
}

// embark decides a call's fate.
func (l *link) embark(op string) (voyage, error) { return l.embarkTo(op, 0) }

// embarkTo is embark to one of a server's shards.
func (l *link) embarkTo(op string, shard int) (voyage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	way := op
	if shard > 0 { // shards' loops wake in the same moment too
		way = fmt.Sprint(op, " ", shard)
	}
	random := l.streams[way]
	if random == nil {
		random = l.stream(way)
		if l.streams == nil {
			l.streams = make(map[string]*rand.Rand)
		}
		l.streams[way] = random
	}
	there := l.parts[shard]
	trip := max(l.profile.Delay, 2*time.Microsecond)
	if l.profile.Jitter > 0 {
		trip += time.Duration(random.Int64N(int64(l.profile.Jitter) + 1))
	}
	v := voyage{there: trip / 2, back: trip - trip/2, calls: &l.calls}
	switch {
	case l.dead, l.down, there.down, l.profile.Refused > 0 && random.Float64() < l.profile.Refused:
		return v, fmt.Errorf("%s: %w", op, errRefused)
	case l.cut, there.cut:
		v.sunk = true
	case there.mute > 0 && random.Float64() < there.mute:
		v.mute = true
	case l.profile.Loss > 0 && random.Float64() < l.profile.Loss:
		v.sunk = random.IntN(2) == 0
		v.mute = !v.sunk
	}
	return v, nil
}

// homeward is the way back.
func (v voyage) homeward(ctx context.Context, op string) error {
	if v.mute {
		return v.wreck(ctx, op)
	}
	return pause(ctx, v.back, op)
}

// carry is a whole call: serve runs where it arrives, when it arrives. A caller whose ctx ends while
// the call is away gets ctx's error, and serve runs all the same; its own context has no end.
func (v voyage) carry(ctx context.Context, op string, serve func(context.Context) error) error {
	if v.sunk {
		return v.wreck(ctx, op)
	}
	served := make(chan error, 1)
	v.calls.Go(func() {
		time.Sleep(v.there)
		served <- serve(context.WithoutCancel(ctx))
	})
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", op, ctx.Err())
	case err := <-served:
		if gone := v.homeward(ctx, op); gone != nil {
			return gone
		}
		return err
	}
}

func (v voyage) wreck(ctx context.Context, op string) error {
	if err := pause(ctx, hangMax, op); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", op, errLost)
}

func pause(ctx context.Context, d time.Duration, op string) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", op, ctx.Err())
	case <-timer.C:
		return nil
	}
}

func (l *link) set(change func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}
