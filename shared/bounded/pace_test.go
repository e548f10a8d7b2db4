package bounded

import (
	"errors"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"
)

// fakeScheduler is a scheduler whose yields take times that the test sets.
type fakeScheduler struct {
	mu             sync.Mutex
	now            int64
	yields, sleeps int
	queue          []time.Duration // how long the next yields take; 0 when it is empty
}

func (s *fakeScheduler) scheduler() *scheduler {
	return &scheduler{since: s.since, yield: s.yield, sleep: s.sleep}
}

func (s *fakeScheduler) since() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

func (s *fakeScheduler) yield() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.yields++
	if len(s.queue) > 0 {
		s.now += int64(s.queue[0])
		s.queue = s.queue[1:]
	}
}

func (s *fakeScheduler) sleep(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sleeps++
	s.now += int64(d)
}

// busy makes each of the next n yields take a millisecond.
func (s *fakeScheduler) busy(n int) {
	s.queue = nil
	for range n {
		s.queue = append(s.queue, time.Millisecond)
	}
}

// paced returns a caller among n callers, on processors that the test controls.
func paced(n int) (*Caller, *Callers, *fakeScheduler) {
	s := &fakeScheduler{now: int64(time.Hour)}
	callers := &Callers{pacing: s.scheduler()}
	var first *Caller
	for i := range n {
		c := callers.enter(netip.MustParsePrefix("10.0.0.0/32").Masked())
		if i > 0 {
			c = callers.enter(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 1, byte(i)}), 32))
		}
		if first == nil {
			first = c
		}
	}
	return first, callers, s
}

// On busy processors, if there are other callers, a caller that sends much waits until the goroutines before it have
// run.
func TestACallerThatKeepsTheProcessorsBusyIsDelayed(t *testing.T) {
	c, among, s := paced(2)
	s.busy(4)
	c.arrive(among, s.since(), paceBytesMin) // measures
	if !c.paced(s.since()) || s.sleeps != 0 {
		t.Fatalf("paced %v after %d sleeps, want paced and not yet delayed", c.paced(s.since()), s.sleeps)
	}
	c.arrive(among, s.since(), 100)
	if s.yields != 5 || s.sleeps != 3 {
		t.Errorf("%d yields and %d sleeps, want 5 and 3: until a yield is short", s.yields, s.sleeps)
	}
	s.sleep(2 * paceWindow)
	if c.paced(s.since()) {
		t.Error("still paced on processors that are no longer busy")
	}
}

// A caller that sends little is never delayed, and neither is a caller without others.
func TestWhoIsNotPaced(t *testing.T) {
	for name, of := range map[string]struct{ callers, bytes int }{
		"a caller that sends little": {2, paceBytesMin - 1},
		"a caller without others":    {1, 100 * paceBytesMin},
	} {
		c, among, s := paced(of.callers)
		for range 10 {
			s.busy(4)
			c.arrive(among, s.since(), of.bytes)
			s.sleep(paceWindow)
		}
		if s.yields != 0 {
			t.Errorf("%s was delayed %d times", name, s.yields)
		}
	}
}

// A caller whose others have left is the only one again.
func TestPacingEndsWithTheOthers(t *testing.T) {
	c, among, s := paced(2)
	among.leave(netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 1, 1}), 32))
	s.busy(4)
	c.arrive(among, s.since(), paceBytesMin)
	if s.yields != 0 {
		t.Error("a caller without others is measured")
	}
}

// While the processors are not busy, a caller is measured once a millisecond and not delayed.
func TestProcessorsThatAreNotBusyDelayNoCaller(t *testing.T) {
	c, among, s := paced(2)
	for range 1000 {
		c.arrive(among, s.since(), paceBytesMin)
	}
	if s.yields != 1 || s.sleeps != 0 {
		t.Errorf("%d yields and %d sleeps within a moment, want 1 and 0", s.yields, s.sleeps)
	}
}

// However long the processors stay busy, no turn lasts longer than restMax and one yield.
func TestATurnHasABound(t *testing.T) {
	c, among, s := paced(2)
	s.busy(1000)
	c.arrive(among, s.since(), paceBytesMin)
	before := s.since()
	c.arrive(among, before, 100)
	if d := time.Duration(s.since() - before); d < restMax || d > restMax+2*time.Millisecond {
		t.Errorf("delayed by %v, want about %v", d, restMax)
	}
}

// Messages of streams are paced like reads. Callers by token, and a nil caller, are not.
func TestStreamsArePaced(t *testing.T) {
	c, _, s := paced(2)
	c.pace.until.Store(since() + int64(time.Hour))
	for range paceBytesMin / 100 {
		c.Pace(100)
	}
	if s.yields != 0 {
		t.Fatalf("%d yields before %d bytes", s.yields, paceBytesMin)
	}
	c.Pace(100)
	if s.yields != 1 {
		t.Errorf("%d yields for a message of a paced caller, want 1", s.yields)
	}
	new(Caller).Pace(1 << 20)
	(*Caller)(nil).Pace(1 << 20)
}

// A connection of a paced caller reads a little at a time, and everything that was sent.
func TestAPacedConnectionReadsAllOfIt(t *testing.T) {
	_, dial := listen(t, 8, nil)
	client, server := dial("127.0.0.2")
	dial("127.0.0.3")
	s := &fakeScheduler{}
	server.listener.callers.pacing = s.scheduler()
	const total = 4 * paceBytesMin
	sent := make(chan error, 1)
	go func() { _, err := client.Write(make([]byte, total)); sent <- err }()
	read, most := 0, 0
	for buffer := make([]byte, total); read < total; {
		server.caller.pace.until.Store(since() + int64(time.Hour))
		n, err := server.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		read, most = read+n, max(most, n)
	}
	if err := <-sent; err != nil || read != total || most > paceReadMax {
		t.Errorf("%d of %d bytes, at most %d at a time (%d), %v", read, total, most, paceReadMax, err)
	}
	if s.yields == 0 {
		t.Error("no read was delayed")
	}
	_ = client.Close()
	if _, err := server.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v", err)
	}
}

// The connections of a paced caller take turns, and each of them continues.
func TestPacedConnectionsTakeTurns(t *testing.T) {
	s := &fakeScheduler{now: 1}
	var inside, most int
	yield := func() {
		s.mu.Lock()
		inside++
		most = max(most, inside)
		s.mu.Unlock()
		s.yield()
		s.mu.Lock()
		inside--
		s.mu.Unlock()
	}
	callers := &Callers{pacing: &scheduler{since: s.since, yield: yield, sleep: s.sleep}}
	c := callers.enter(netip.MustParsePrefix("10.0.0.1/32"))
	callers.enter(netip.MustParsePrefix("10.0.0.2/32"))
	c.pace.until.Store(int64(time.Hour))
	s.busy(100)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { c.arrive(callers, 1, paceBytesMin) })
	}
	all.Wait()
	if most != 1 {
		t.Errorf("%d connections at a time, want 1", most)
	}
}
