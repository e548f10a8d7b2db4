package peers_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/dataplane/relay/peers"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/testcert"
)

// An error names the field, its value or length, and the bound.
func TestValidateNamesFieldAndBound(t *testing.T) {
	good := func() peers.Config {
		return peers.Config{Region: "eu", Listen: ":7000", TLS: new(peers.TLS),
			Peers: []peers.Peer{{Region: "us", Name: nameOf("us"), Addresses: []string{"10.0.0.1:7000", "[::1]:7000"}}}}
	}
	if cfg := good(); cfg.Validate() != nil {
		t.Fatal(cfg.Validate())
	}
	plain := func(c *peers.Config) {
		c.TLS, c.Plaintext, c.Listen, c.Peers[0].Addresses = nil, true, "127.0.0.1:0", []string{"localhost:7000"}
	}
	if cfg := good(); true {
		if plain(&cfg); cfg.Validate() != nil {
			t.Fatal(cfg.Validate())
		}
	}
	for want, spoil := range map[string]func(*peers.Config){
		"region is 0 bytes long (1 to 48)":                   func(c *peers.Config) { c.Region = "" },
		"peers are 0 (1 to 64)":                              func(c *peers.Config) { c.Peers = nil },
		"peers are 65 (1 to 64)":                             func(c *peers.Config) { c.Peers = make([]peers.Peer, peers.PeersMax+1) },
		"tls is not set":                                     func(c *peers.Config) { c.TLS = nil },
		"plaintext and tls are both set":                     func(c *peers.Config) { c.Plaintext = true },
		`listen "7000" is not host:port`:                     func(c *peers.Config) { c.Listen = "7000" },
		`port is "70000" (0 to 65535)`:                       func(c *peers.Config) { c.Listen = ":70000" },
		"peer 1: region is 49 bytes long (1 to 48)":          func(c *peers.Config) { c.Peers[0].Region = strings.Repeat("x", store.RegionBytesMax+1) },
		`peer 1: region "eu" appears twice`:                  func(c *peers.Config) { c.Peers[0].Region = "eu" },
		`peer 2: region "us" appears twice`:                  func(c *peers.Config) { c.Peers = append(c.Peers, c.Peers[0]) },
		`peer 1: region is "\xff", which is not UTF-8`:       func(c *peers.Config) { c.Peers[0].Region = "\xff" },
		`region is "e\x1bu", which has control characters`:   func(c *peers.Config) { c.Region = "e\x1bu" },
		"peer 1: name is 0 bytes long (1 to 253)":            func(c *peers.Config) { c.Peers[0].Name = "" },
		"peer 1: name is 254 bytes long (1 to 253)":          func(c *peers.Config) { c.Peers[0].Name = strings.Repeat("x", 254) },
		"peer 1: addresses are 0 (1 to 16)":                  func(c *peers.Config) { c.Peers[0].Addresses = nil },
		"peer 1: addresses are 17 (1 to 16)":                 func(c *peers.Config) { c.Peers[0].Addresses = make([]string, 17) },
		`peer 1: address "10.0.0.1" is not host:port`:        func(c *peers.Config) { c.Peers[0].Addresses[0] = "10.0.0.1" },
		`peer 1: address ":7000" has no host`:                func(c *peers.Config) { c.Peers[0].Addresses[0] = ":7000" },
		`address "10.0.0.1:0": port is "0" (1 to 65535)`:     func(c *peers.Config) { c.Peers[0].Addresses[0] = "10.0.0.1:0" },
		`address "[::1]:7000" appears twice`:                 func(c *peers.Config) { c.Peers[0].Addresses[0] = "[::1]:7000" },
		`listen ":7000" is not on loopback`:                  func(c *peers.Config) { plain(c); c.Listen = ":7000" },
		`peer 1: address "10.0.0.1:7000" is not on loopback`: func(c *peers.Config) { plain(c); c.Peers[0].Addresses[0] = "10.0.0.1:7000" },
	} {
		bad := good()
		spoil(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
		if _, err := peers.New(bad); err == nil {
			t.Errorf("New takes it: %s", want)
		}
	}
}

// Start and Stop may each be called twice, in any order. Start returns an error if the address is in use.
func TestStartAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{TB: t, network: newNetwork(oneWay), authority: testcert.New(t), names: []string{"eu", "us"}}
		made := func() *peers.Peers {
			p, err := peers.New(f.config("eu", 0, 1))
			if err != nil {
				t.Fatal(err)
			}
			return peers.Over(p, f.network)
		}
		p := made()
		p.Publish(row(1, 10)) // before Start
		if err := p.Start(t.Context(), &fakeRelay{}); err != nil {
			t.Fatal(err)
		}
		if err := p.Start(t.Context(), &fakeRelay{}); !errors.Is(err, peers.ErrStarted) {
			t.Errorf("a second Start: %v", err)
		}
		for range 2 {
			p.Stop()
		}
		p.Publish(row(2, 10)) // after Stop
		if err := p.Start(t.Context(), &fakeRelay{}); !errors.Is(err, peers.ErrStarted) {
			t.Errorf("Start after Stop: %v", err)
		}
		f.network.taken = true
		taken := made()
		if err := taken.Start(t.Context(), &fakeRelay{}); !errors.Is(err, errTaken) || !strings.Contains(err.Error(), "listen") {
			t.Errorf("with the address taken: %v", err)
		}
		taken.Stop()
		problems, err := testutil.CollectAndLint(p.Collector())
		if err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
	})
}

// A queue has the newest rows, within its bounds of rows and bytes. It has no rows before and after its stream.
func TestTheQueueDropsTheOldest(t *testing.T) {
	q := peers.NewQueue()
	if taken, _ := q.Push(row(1, 1)); taken {
		t.Error("it takes a row, and there is no stream")
	}
	q.SetOpen(true)
	for _, c := range []struct{ rows, bytes, want int }{
		{peers.QueueRowsMax + 5, 1, peers.QueueRowsMax},
		{peers.QueueRowsMax, peers.QueueBytesMax / 8, 8},
		{3, peers.QueueBytesMax / 2, 2},
	} {
		dropped := 0
		for i := range c.rows {
			_, n := q.Push(row(int64(i+1), c.bytes))
			dropped += n
		}
		var got []int64
		for range c.want {
			next, _ := q.Take(t.Context())
			got = append(got, next.Sequence)
		}
		if first := int64(c.rows - c.want + 1); got[0] != first || got[len(got)-1] != int64(c.rows) || !slices.IsSorted(got) || dropped != c.rows-c.want {
			t.Errorf("of %d rows with %d bytes %d are dropped, %v stay", c.rows, c.bytes, dropped, got)
		}
	}
	q.Push(row(1, 1))
	if dropped := q.SetOpen(false); dropped != 1 {
		t.Errorf("%d rows were left, want 1", dropped)
	}
}
