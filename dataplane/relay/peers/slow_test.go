package peers_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/relay/peers"
	"github.com/weirhq/weir/dataplane/store"
)

// Rows arrive as they were published, in their order, under the sender's region.
func TestRowsArrive(t *testing.T) {
	inPair(t, nil, func(t *testing.T, p *pair) {
		for sequence := range int64(20) {
			p.eu.Publish(row(sequence+1, store.FeedBytesMax/16))
		}
		p.eu.Publish(row(21, store.FeedBytesMax))
		<-time.After(2 * time.Second)
		received := p.relay.rows
		if len(received) != 21 {
			t.Fatalf("%d rows are heard, want 21", len(received))
		}
		for i, got := range received {
			if want := int64(i + 1); got.Sequence != want || got.Region != "eu" || got.Shard != 3 {
				t.Errorf("row %d of shard %d of %q, want %d of 3 of eu", got.Sequence, got.Shard, got.Region, want)
			}
		}
		if n := len(received[20].Payload); n != store.FeedBytesMax {
			t.Errorf("the longest row has %d bytes", n)
		}
		wantMetrics(t, p.eu, `weir_relay_peer_rows_total{outcome="sent",peer="us"} 21`, `weir_relay_peer_connected{peer="us"} 1`)
		wantMetrics(t, p.us, `weir_relay_peer_rows_total{outcome="applied",peer="eu"} 21`)
	})
}

// A stream begins with the rows that were sent before. If the receiving relay has forgotten them, or applies no rows,
// the stream is opened again and begins with them again.
func TestAStreamBeginsWithWhatWasSentBefore(t *testing.T) {
	inPair(t, nil, func(t *testing.T, p *pair) {
		p.euRelay.set(func(e *fakeRelay) { e.sent = []store.FeedRow{row(101, 9), row(102, 9)} })
		p.relay.set(func(e *fakeRelay) { e.lost++ })
		<-time.After(3 * time.Second)
		if got := p.relay.received(); !slices.Equal(got, []int64{101, 102}) {
			t.Fatalf("rows %v are heard, want those that were sent before", got)
		}
		p.relay.set(func(e *fakeRelay) { e.err = errors.New("not open yet") })
		p.eu.Publish(row(1, 9))
		<-time.After(3 * time.Second)
		p.relay.set(func(e *fakeRelay) { e.err, e.rows = nil, nil })
		<-time.After(3 * time.Second)
		if got := p.relay.received(); !slices.Equal(got, []int64{101, 102}) {
			t.Errorf("rows %v are heard, want those that were sent before", got)
		}
		if n := connected(t, p.eu, "us"); n != 1 {
			t.Errorf("%d streams are open, want 1", n)
		}
	})
}

// If rows were dropped because the peer was slow, all counts that were sent before are repeated.
func TestWhatASlowPeerMissedIsRepeated(t *testing.T) {
	inPair(t, nil, func(t *testing.T, p *pair) {
		p.euRelay.set(func(e *fakeRelay) { e.sent = []store.FeedRow{row(1001, 9)} })
		p.eu.Publish(row(1, 9))
		<-time.After(time.Second)
		if got := p.relay.received(); !slices.Equal(got, []int64{1}) {
			t.Fatalf("rows %v are heard, and none was dropped", got)
		}
		release := make(chan struct{})
		p.relay.set(func(e *fakeRelay) { e.hold = release })
		for sequence := range int64(1000) {
			p.eu.Publish(row(sequence+2, 100<<10))
		}
		<-time.After(time.Second)
		p.relay.set(func(e *fakeRelay) { e.hold = nil })
		close(release)
		<-time.After(peers.SendTimeout / 2)
		if got := p.relay.received(); !slices.Contains(got, 1001) || len(got) == 1001 {
			t.Errorf("rows %v are heard, want some of them dropped and what was sent before repeated", got)
		}
	})
}

// A peer that reads no rows does not delay Publish: the oldest rows are dropped and counted, and the newest arrive. If
// the peer reads nothing for longer than sendTimeout, the stream is opened again.
func TestASlowPeer(t *testing.T) {
	inPair(t, nil, func(t *testing.T, p *pair) {
		release := make(chan struct{})
		p.relay.set(func(e *fakeRelay) { e.hold = release })
		const n = 1000
		began := time.Now()
		for sequence := range int64(n) {
			p.eu.Publish(row(sequence+1, 100<<10))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("telling takes %v of virtual time", took)
		}
		<-time.After(peers.SendTimeout / 2)
		p.relay.set(func(e *fakeRelay) { e.hold = nil })
		close(release)
		<-time.After(peers.SendTimeout / 4)
		received := p.relay.received()
		if last := received[len(received)-1]; last != n || len(received) > 2*peers.QueueRowsMax {
			t.Errorf("%d rows are heard, the last is %d, want %d", len(received), last, n)
		}
		if n, want := metric(t, p.eu, `weir_relay_peer_rows_total{outcome="dropped",peer="us"}`), n-len(received); n != want {
			t.Errorf("%d rows are dropped, want %d", n, want)
		}

		dials := p.network.dials(addressOf("us", 0))
		release = make(chan struct{})
		p.relay.set(func(e *fakeRelay) { e.hold = release })
		for sequence := range int64(n) {
			p.eu.Publish(row(n+sequence+1, 100<<10))
		}
		<-time.After(peers.SendTimeout + 5*time.Second)
		if p.network.dials(addressOf("us", 0)) == dials {
			t.Error("the stream is not made anew")
		}
		p.relay.set(func(e *fakeRelay) { e.hold = nil })
		close(release)
		p.eu.Publish(row(3*n, 10))
		<-time.After(time.Second)
		if received := p.relay.received(); received[len(received)-1] != 3*n {
			t.Errorf("the last row that is heard is %d", received[len(received)-1])
		}
		sent := metric(t, p.eu, `weir_relay_peer_rows_total{outcome="sent",peer="us"}`)
		if dropped := metric(t, p.eu, `weir_relay_peer_rows_total{outcome="dropped",peer="us"}`); sent+dropped != 2*n+1 {
			t.Errorf("%d rows are sent and %d dropped, of %d", sent, dropped, 2*n+1)
		}
	})
}

// Streams to a relay that stops leading are ended, and a relay that begins to lead is found. The same holds for the
// sender.
func TestOnlyRelaysThatLeadHaveStreams(t *testing.T) {
	inPair(t, nil, func(t *testing.T, p *pair) {
		for _, step := range []struct {
			what    string
			eu, us  bool
			seconds int
			streams int
			dials   bool // connections are tried within a minute
		}{
			{"both lead", true, true, 2, 1, false}, {"us does not", true, false, 1, 0, false}, {"nor for long", true, false, 60, 0, true},
			{"both again", true, true, 3, 1, false}, {"eu does not", false, true, 1, 0, false}, {"nor for long", false, true, 60, 0, false},
			{"neither", false, false, 60, 0, false}, {"both at last", true, true, 3, 1, false},
		} {
			dials := p.network.dials(addressOf("us", 0))
			p.euRelay.set(func(e *fakeRelay) { e.idle = !step.eu })
			p.relay.set(func(e *fakeRelay) { e.idle = !step.us })
			<-time.After(time.Duration(step.seconds) * time.Second)
			if n := connected(t, p.eu, "us"); n != step.streams {
				t.Errorf("%s: %d streams, want %d", step.what, n, step.streams)
			}
			if dialed := p.network.dials(addressOf("us", 0)) > dials; step.seconds == 60 && dialed != step.dials {
				t.Errorf("%s: connections are tried: %v", step.what, dialed)
			}
		}
	})
}

// Each attempt at a host name takes the next of its addresses, so that the relay that leads is found.
func TestAHostWithSeveralAddresses(t *testing.T) {
	inPair(t, func(f *fleet, eu, us *peers.Config) {
		f.network.hosts = map[string][]string{"us.relays.test": {"10.0.0.2", "10.0.0.3", "10.0.0.1"}}
		eu.Peers[0].Addresses = []string{"us.relays.test:7000"}
		us.Listen = "10.0.0.3:7000"
	}, func(t *testing.T, p *pair) {
		<-time.After(2 * time.Second)
		if n := connected(t, p.eu, "us"); n != 1 {
			t.Errorf("%d streams, and 10.0.0.3 was tried %d times", n, p.network.dials("10.0.0.3:7000"))
		}
	})
}

// Plaintext works over loopback if it is configured.
func TestPlaintextOverLoopback(t *testing.T) {
	inPair(t, func(_ *fleet, eu, us *peers.Config) {
		for _, c := range []*peers.Config{eu, us} {
			c.TLS, c.Plaintext = nil, true
		}
		us.Listen, eu.Listen = "127.0.0.1:7001", ""
		eu.Peers[0].Addresses, us.Peers[0].Addresses = []string{"127.0.0.1:7001"}, []string{"127.0.0.1:7000"}
	}, func(t *testing.T, p *pair) {
		p.eu.Publish(row(1, 10))
		<-time.After(time.Second)
		if received := p.relay.received(); len(received) != 1 {
			t.Errorf("%d rows are heard", len(received))
		}
		if p.eu.Addr() != nil || p.us.Addr().String() != "127.0.0.1:7001" {
			t.Errorf("%v and %v", p.eu.Addr(), p.us.Addr())
		}
	})
}
