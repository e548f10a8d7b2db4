// Package network is what lies between a simulated process and its servers: delay, jitter, loss, partition, and meters
// of what the servers are asked for.
package network

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
	Delay  time.Duration // round trip, 2 µs at least: what is sent and what comes of it are never one moment
	Jitter time.Duration // added to it, 0 to this, evenly
	Loss   float64       // share of calls that get lost, request or reply at even odds
	Twice  float64       // share of posts, and of an origin's calls, that arrive twice
}

var (
	errRefused = errors.New("network: connection refused")
	errLost    = errors.New("network: no answer")
)

// hangMax is how long a call without a deadline waits for an answer that will not come.
const hangMax = time.Minute

// Link is one node's way to one server. The draws for each kind of call come from a stream
// of their own: loops that wake in the same moment change nothing for each other.
type Link struct {
	mu      sync.Mutex
	Profile Profile
	Stream  func(op string) *rand.Rand
	streams map[string]*rand.Rand
	Cut     bool // partition: nothing arrives, nothing is refused
	Dead    bool // the node was killed
	Down    bool // every call is refused
	Parts   map[int]Part
	Calls   sync.WaitGroup // carried ones that are on their way, those included whose callers have gone
	failed  time.Time      // when a caller of one last got no answer, or a late one
}

// Part is what is wrong with one shard of the server, behind a link that is not.
type Part struct {
	Cut, Down bool    // as of the link
	Mute      float64 // share of replies that get lost
}

// voyage is one call.
type voyage struct {
	there, back time.Duration
	again       time.Duration // > 0: the request arrives once more, so much later, and that is what is answered
	sunk        bool          // the request never arrives
	mute        bool          // the reply never arrives
	link        *Link
}

// embark decides a call's fate.
func (l *Link) embark(op string) (voyage, error) { return l.embarkTo(op, 0) }

// embarkTo is embark to one of a server's shards.
func (l *Link) embarkTo(op string, shard int) (voyage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	way := op
	if shard > 0 { // shards' loops wake in the same moment too
		way = fmt.Sprint(op, " ", shard)
	}
	random := l.randomLocked(way)
	there := l.Parts[shard]
	trip := max(l.Profile.Delay, 2*time.Microsecond)
	if l.Profile.Jitter > 0 {
		trip += time.Duration(random.Int64N(int64(l.Profile.Jitter) + 1))
	}
	v := voyage{there: trip / 2, back: trip - trip/2, link: l}
	if trip > promptMax {
		l.failed = time.Now()
	}
	switch {
	case l.Dead, l.Down, there.Down:
		l.failed = time.Now()
		return v, fmt.Errorf("%s: %w", op, errRefused)
	case l.Cut, there.Cut:
		v.sunk = true
	case there.Mute > 0 && random.Float64() < there.Mute:
		v.mute = true
	case l.Profile.Loss > 0 && random.Float64() < l.Profile.Loss:
		v.sunk = random.IntN(2) == 0
		v.mute = !v.sunk
	}
	if v.sunk || v.mute {
		l.failed = time.Now() // its caller may leave before the call has ended
	}
	return v, nil
}

// embarkCall is embarkTo for a call that the network may repeat.
func (l *Link) embarkCall(op string, shard int) (voyage, error) {
	repeated := l.copies(op+" twice") > 1
	v, err := l.embarkTo(op, shard)
	if repeated {
		v.again = v.there
	}
	return v, err
}

// randomLocked is the source of the draws for one kind of call.
func (l *Link) randomLocked(way string) *rand.Rand {
	random := l.streams[way]
	if random == nil {
		random = l.Stream(way)
		if l.streams == nil {
			l.streams = make(map[string]*rand.Rand)
		}
		l.streams[way] = random
	}
	return random
}

// homeward is the way back.
func (v voyage) homeward(ctx context.Context, op string) error {
	if v.mute {
		return v.wreck(ctx, op)
	}
	return Pause(ctx, v.back, op)
}

// carry is a whole call: serve runs where it arrives, when it arrives. A caller whose ctx ends while
// the call is away gets ctx's error, and serve runs all the same; its own context has no end.
func carry[R any](ctx context.Context, v voyage, op string,
	serve func(context.Context) (R, error)) (reply R, err error) {
	answered := false
	defer func() {
		if !answered {
			v.link.Set(func(l *Link) { l.failed = time.Now() })
		}
	}()
	if v.sunk {
		return reply, v.wreck(ctx, op)
	}
	type answer struct {
		reply R
		err   error
	}
	served := make(chan answer, 1)
	v.link.Calls.Go(func() {
		var a answer
		time.Sleep(v.there)
		a.reply, a.err = serve(context.WithoutCancel(ctx))
		if v.again > 0 {
			time.Sleep(v.again)
			a.reply, a.err = serve(context.WithoutCancel(ctx))
		}
		served <- a
	})
	select {
	case <-ctx.Done():
		return reply, fmt.Errorf("%s: %w", op, ctx.Err())
	case a := <-served:
		if gone := v.homeward(ctx, op); gone != nil {
			return reply, gone
		}
		if answered = true; a.err != nil {
			return reply, a.err
		}
		return a.reply, nil
	}
}

func (v voyage) wreck(ctx context.Context, op string) error {
	if err := Pause(ctx, hangMax, op); err != nil {
		return err
	}
	return fmt.Errorf("%s: %w", op, errLost)
}

// Pause waits for d, or until ctx ends: then its error names what was going on.
func Pause(ctx context.Context, d time.Duration, op string) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", op, ctx.Err())
	case <-timer.C:
		return nil
	}
}

// Post sends a message, of which its sender hears nothing more: deliver runs where it arrives, if it does. Messages
// overtake each other as the link's delays have it.
func (l *Link) Post(op string, deliver func()) {
	for range l.copies(op) {
		v, err := l.embark(op)
		if err != nil || v.sunk || v.mute {
			continue
		}
		v.link.Calls.Go(func() {
			time.Sleep(v.there)
			deliver()
		})
	}
}

// copies is how often a message is sent.
func (l *Link) copies(op string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Profile.Twice > 0 && l.randomLocked(op).Float64() < l.Profile.Twice {
		return 2
	}
	return 1
}

// Set changes the link, for calls that begin afterwards.
func (l *Link) Set(change func(*Link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// Fault has links behave otherwise for a time: begin asks which links, and end mends the same ones.
func Fault(which func() []*Link, change func(l *Link, bad bool)) (begin, end func()) {
	var links []*Link
	set := func(bad bool) {
		for _, l := range links {
			l.Set(func(l *Link) { change(l, bad) })
		}
	}
	return func() { links = which(); set(true) }, func() { set(false) }
}

// Cut is a Fault: nothing arrives.
func Cut(l *Link, bad bool) { l.Cut = bad }

// Down is a Fault: every call is refused.
func Down(l *Link, bad bool) { l.Down = bad }

// Failed notes that the server has refused a call.
func (l *Link) Failed() { l.Set(func(l *Link) { l.failed = time.Now() }) }

// promptMax is what a call takes at most that callers with deadlines of a few calls wait for.
const promptMax = 12 * time.Millisecond

// WorksSince tells whether all calls were answered, within promptMax, that were under way since a moment.
func (l *Link) WorksSince(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed.Before(since)
}
