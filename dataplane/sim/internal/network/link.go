// Package network simulates the network between a process and its servers: delay, jitter, loss and partitions, with
// meters of the load on the servers.
package network

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Profile is the behavior of a link.
type Profile struct {
	Delay  time.Duration // round trip, at least 2 µs, so that a request and its reply are never at the same moment
	Jitter time.Duration // added to the delay: 0 to Jitter, evenly distributed
	Loss   float64       // share of calls that are lost, request or reply with equal odds
	Twice  float64       // share of posts, and of an origin's calls, that arrive twice
}

var (
	errRefused = errors.New("network: connection refused")
	errLost    = errors.New("network: no answer")
)

// hangMax is how long a call without a deadline waits if no answer comes.
const hangMax = time.Minute

// Link is a node's link to a server. Each kind of call draws from a separate stream, so that loops that wake at the
// same moment do not change each other's draws.
type Link struct {
	mu      sync.Mutex
	Profile Profile
	Stream  func(op string) *rand.Rand
	streams map[string]*rand.Rand
	Cut     bool // partition: calls neither arrive nor are refused
	Dead    bool // the node was killed
	Down    bool // every call is refused
	Parts   map[int]Part
	Calls   sync.WaitGroup // carried calls on their way, including calls whose callers have gone
	failed  time.Time      // when a call of a caller last got no answer, or a late answer
}

// Part is the faults of a shard of the server, behind a link without faults.
type Part struct {
	Cut, Down bool    // as for the link
	Mute      float64 // share of replies that are lost
}

// voyage is a call.
type voyage struct {
	there, back time.Duration
	again       time.Duration // if > 0, the request arrives again after this time, and the reply is the second result
	sunk        bool          // the request never arrives
	mute        bool          // the reply never arrives
	link        *Link
}

// embark decides the fate of a call.
func (l *Link) embark(op string) (voyage, error) { return l.embarkTo(op, 0) }

// embarkTo is embark for a call to a shard.
func (l *Link) embarkTo(op string, shard int) (voyage, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	way := op
	if shard > 0 { // the loops of several shards also wake at the same moment
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
		l.failed = time.Now() // the caller may give up before the call has ended
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

// randomLocked returns the source of draws for a kind of call.
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

// homeward waits for the reply's way back.
func (v voyage) homeward(ctx context.Context, op string) error {
	if v.mute {
		return v.wreck(ctx, op)
	}
	return Pause(ctx, v.back, op)
}

// carry carries a whole call: serve runs when the call arrives. If ctx ends while the call is on its way, the caller
// gets ctx's error, but serve still runs. serve's own context does not end.
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

// Pause waits for d, or until ctx ends. Then it returns an error that names op.
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

// Post sends a message without a reply. If the message arrives, deliver runs then. Messages can overtake each other.
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

// copies returns how often a message is sent.
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

// Fault changes links for a time. begin calls which for the links and changes them, and end restores the same links.
func Fault(which func() []*Link, change func(l *Link, bad bool)) (begin, end func()) {
	var links []*Link
	set := func(bad bool) {
		for _, l := range links {
			l.Set(func(l *Link) { change(l, bad) })
		}
	}
	return func() { links = which(); set(true) }, func() { set(false) }
}

// Cut is a change for Fault: calls do not arrive.
func Cut(l *Link, bad bool) { l.Cut = bad }

// Down is a change for Fault: every call is refused.
func Down(l *Link, bad bool) { l.Down = bad }

// Failed records that the server has refused a call.
func (l *Link) Failed() { l.Set(func(l *Link) { l.failed = time.Now() }) }

// promptMax is the longest prompt call. Callers whose deadlines are a few calls long can still get its answer.
const promptMax = 12 * time.Millisecond

// WorksSince reports whether all calls that were under way since the given time were answered within promptMax.
func (l *Link) WorksSince(since time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed.Before(since)
}
