package peers_test

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane/relay/peers"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/testcert"
)

// fakeRelay keeps the rows that it receives.
type fakeRelay struct {
	mu   sync.Mutex
	idle bool
	rows []store.FeedRow
	err  error // returned by Apply
	lost int
	sent []store.FeedRow // rows that Handed returns
	hold chan struct{}   // Apply waits for it, if not nil

	inside, insideMost int // number of concurrent calls of Apply: now, and at most
}

func (e *fakeRelay) Apply(row store.FeedRow) error {
	e.mu.Lock()
	hold := e.hold
	e.inside++
	e.insideMost = max(e.insideMost, e.inside)
	e.mu.Unlock()
	if hold != nil {
		<-hold
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inside--
	e.rows = append(e.rows, row)
	return e.err
}

func (e *fakeRelay) Leads() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.idle
}

func (e *fakeRelay) Lost() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.lost
}

func (e *fakeRelay) Handed() iter.Seq[store.FeedRow] {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Values(e.sent)
}

func (e *fakeRelay) set(change func(*fakeRelay)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(e)
}

func (e *fakeRelay) received() (sequences []int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, row := range e.rows {
		sequences = append(sequences, row.Sequence)
	}
	return sequences
}

// pair is two regions in a synctest bubble: eu sends rows, and us receives them.
type pair struct {
	*fleet
	eu, us         *peers.Peers
	euRelay, relay *fakeRelay
}

// inPair runs a test with a pair, whose configuration change may alter.
func inPair(t *testing.T, change func(f *fleet, eu, us *peers.Config), test func(t *testing.T, p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{TB: t, network: newNetwork(oneWay), authority: testcert.New(t), names: []string{"eu", "us"}}
		eu, us := f.config("eu", 0, 1), f.config("us", 0, 1)
		if change != nil {
			change(f, &eu, &us)
		}
		p := &pair{fleet: f, euRelay: &fakeRelay{}, relay: &fakeRelay{}}
		p.us = f.peers(us, p.relay)
		p.eu = f.peers(eu, p.euRelay)
		defer f.stop()
		defer p.us.Stop()
		defer p.eu.Stop()
		<-time.After(2 * time.Second)
		test(t, p)
	})
}

// peers starts peers for a relay that a test plays.
func (f *fleet) peers(cfg peers.Config, r peers.Relay) *peers.Peers {
	f.Helper()
	made, err := peers.New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	if err := peers.Over(made, f.network).Start(f.Context(), r); err != nil {
		f.Fatal(err)
	}
	return made
}

func row(sequence int64, bytes int) store.FeedRow {
	return store.FeedRow{Stream: store.Stream{Region: "eu", Shard: 3}, Sequence: sequence, Payload: make([]byte, bytes)}
}

// metricsOf returns the metrics in Prometheus's text format.
func metricsOf(t testing.TB, p *peers.Peers) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(p.Collector())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			fmt.Fprintf(&all, "%s{%s} %v\n", f.GetName(), strings.Join(labels, ","), m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
	return all.String()
}

func wantMetrics(t testing.TB, p *peers.Peers, lines ...string) {
	t.Helper()
	all := metricsOf(t, p)
	for _, line := range lines {
		if !strings.Contains(all, line+"\n") {
			t.Errorf("no %s in\n%s", line, all)
		}
	}
}

// connected returns the number of streams to a peer.
func connected(t testing.TB, p *peers.Peers, peer string) int {
	t.Helper()
	return metric(t, p, fmt.Sprintf("weir_relay_peer_connected{peer=%q}", peer))
}

// metric returns the value of a line.
func metric(t testing.TB, p *peers.Peers, line string) (n int) {
	t.Helper()
	_, rest, _ := strings.Cut(metricsOf(t, p), line+" ")
	_, _ = fmt.Sscan(rest, &n)
	return n
}
