package nodecmd

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/testcert"
)

// Two regions send each other their accepted cost over mutual TLS. If the streams are cut, MySQL carries it.
func TestRegionsPublishToEachOther(t *testing.T) { servers.EachSQL(t, testRegionsPublishToEachOther) }

func testRegionsPublishToEachOther(t *testing.T) {
	dsn := migrated(t, servers.SQLForTest(t))
	tls := certificates(t, "eu", "us")
	region := func(name, peer string) *command {
		return begin(t, append(tls[name],
			"--region="+name, "--redis-url=redis://"+servers.RedisForTest(t).Addr(), "--mysql-dsn="+dsn,
			"--relay-peers-listen=127.0.0.1:0", "--relay-peers-domain=relays.test", "--relay-peers="+peer)...)
	}
	us := region("us", "eu=127.0.0.1:1")
	streams := servers.ProxyForTest(t, us.peersListen(t))
	eu := region("eu", "us="+streams.Addr())
	await.True(t, "the relay of us takes rows from that of eu", func() bool {
		return eu.shows(t, `weir_relay_peer_connected{peer="us"} 1`) && us.shows(t, `weir_relay_lease_held{shard="0"} 1`)
	})
	known := func(identifier string) {
		t.Helper()
		eu.ask(t, identifier, 3)
		us.ask(t, identifier, 2)
		for name, c := range map[string]*command{"eu": eu, "us": us} {
			await.True(t, name+" knows what both accepted of "+identifier, func() bool { return c.ask(t, identifier, 0).Remaining == 5 })
		}
	}
	known("streamed")
	await.True(t, "us has heard eu", func() bool { return !us.shows(t, `weir_relay_peer_rows_total{outcome="applied",peer="eu"} 0`) })
	streams.Cut()
	await.True(t, "eu sees that us is gone", func() bool { return eu.shows(t, `weir_relay_peer_connected{peer="us"} 0`) })
	known("stored")
	wantRelayInHeartbeats(t, dsn)
	for _, c := range []*command{eu, us} {
		c.endWell(t)
	}
}

// If the address for peers is taken, the command ends, and still sends the cost that it has accepted.
func TestTakenPortForPeers(t *testing.T) {
	c := begin(t)
	taken := strings.TrimPrefix(c.listen, "http://")
	var stdout, stderr await.Log
	code := Main(t.Context(), []string{"--listen=127.0.0.1:0", "--grpc-listen=", "--admin-listen=127.0.0.1:0", "--region=eu",
		"--redis-url=redis://127.0.0.1:1", "--mysql-dsn=weir@tcp(127.0.0.1:1)/weir", "--drain-timeout=100ms",
		"--relay-peers=us=127.0.0.1:1", "--relay-peers-listen=" + taken}, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), taken) {
		t.Errorf("exit code %d\n%s", code, &stderr)
	}
	c.endWell(t)
}

// Certificates that cannot be read end the command before it listens.
func TestCertificatesOfPeers(t *testing.T) {
	var stdout, stderr await.Log
	code := Main(t.Context(), []string{"--region=eu", "--redis-url=redis://127.0.0.1:1", "--mysql-dsn=weir@tcp(127.0.0.1:1)/weir",
		"--relay-peers=us=us.example:7301", "--relay-peers-cert-file=/no/such/cert", "--relay-peers-key-file=/k", "--relay-peers-ca-file=/ca"}, &stdout, &stderr)
	if code != 1 || !strings.Contains(stderr.String(), "relay-peers-cert-file") || !strings.Contains(stderr.String(), "/no/such/cert") {
		t.Errorf("exit code %d\n%s", code, &stderr)
	}
}

// Each fault of the options has its name and bound.
func TestPeersOptions(t *testing.T) {
	stores := []string{"--region=eu", "--redis-url=redis://h:1", "--mysql-dsn=weir@tcp(h:1)/weir"}
	files := []string{"--relay-peers-cert-file=/c", "--relay-peers-key-file=/k", "--relay-peers-ca-file=/ca"}
	sixteen := strings.Repeat("h:1,", 16)
	for _, step := range []struct {
		name string
		args []string
		want string // of the error; empty: none
	}{
		{"regions with several relays", append(files, "--relay-peers=us=us-0:7301,us-1:7301  ap=[::1]:7301", "--relay-peers-listen=:7301"), ""},
		{"plaintext on loopback", []string{"--relay-peers=us=127.0.0.1:7301", "--relay-peers-listen=127.0.0.1:7202"}, ""},
		{"plaintext beyond", []string{"--relay-peers=us=us-0:7301"}, `relay-peers: peer 1: address "us-0:7301" is not on loopback`},
		{"plaintext listener beyond", []string{"--relay-peers=us=127.0.0.1:1", "--relay-peers-listen=:7301"}, `relay-peers: listen ":7301" is not on loopback`},
		{"no peers", []string{"--relay-peers-listen=127.0.0.1:7301"}, "relay-peers-listen is set and relay-peers is not"},
		{"files and no peers", files, "relay-peers-cert-file is set and relay-peers is not"},
		{"domain and no peers", []string{"--relay-peers-domain=x"}, "relay-peers-domain is set and relay-peers is not"},
		{"two files", append(files[:2:2], "--relay-peers=us=us-0:7301"), "relay-peers-cert-file, relay-peers-key-file and relay-peers-ca-file: set all, or none"},
		{"no region", append(files, "--relay-peers=us-0:7301"), `relay-peers: "us-0:7301" is not region=host:port`},
		{"no addresses", append(files, "--relay-peers=us="), `relay-peers: "us=" is not region=host:port`},
		{"no port", append(files, "--relay-peers=us=us-0"), `relay-peers: the address of us is "us-0": want host:port`},
		{"too many", append(files, "--relay-peers=us="+sixteen+"h:2"), "relay-peers: peer 1: addresses are 17 (1 to 16)"},
		{"own region", append(files, "--relay-peers=us=h:1 eu=h:2"), `relay-peers: peer 2: region "eu" appears twice`},
		{"long name", append(files, "--relay-peers=us=h:1", "--relay-peers-domain="+strings.Repeat("d", 251)), "name is 254 bytes long (1 to 253)"},
	} {
		_, _, err := parse(append(stores, step.args...)...)
		if step.want == "" && err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		if step.want != "" {
			wantError(t, err, step.want)
		}
	}
	for _, args := range [][]string{stores[:2], {stores[0], stores[2]}} {
		_, _, err := parse(append(args, "--relay-peers=us=127.0.0.1:1")...)
		wantError(t, err, "relay-peers needs redis-url and mysql-dsn")
	}
}

// A certificate has its region's name in the domain, or the region's name if there is no domain.
func TestNamesOfPeers(t *testing.T) {
	for domain, want := range map[string]string{"": "us", "relays.example": "us.relays.example"} {
		peers, err := (Config{RelayPeers: "us=a:1,b:1", RelayPeersDomain: domain}).relayPeers()
		if err != nil || len(peers) != 1 || peers[0].Name != want || peers[0].Region != "us" || len(peers[0].Addresses) != 2 {
			t.Errorf("with domain %q: %+v, error %v", domain, peers, err)
		}
	}
}

// peersListen returns the address at which the command accepts other regions.
func (c *command) peersListen(t *testing.T) (address string) {
	t.Helper()
	await.True(t, "the log says where other regions are heard", func() bool {
		for line := range strings.Lines(c.stderr.String()) {
			var event struct {
				Address string `json:"relay_peers_listen"`
			}
			if json.Unmarshal([]byte(line), &event) == nil && event.Address != "" {
				address = event.Address
			}
		}
		return address != ""
	})
	return address
}

// shows reports whether the command's metrics have a line.
func (c *command) shows(t *testing.T, line string) bool {
	t.Helper()
	_, metrics := c.get(t, "/metrics")
	return strings.Contains(metrics, line+"\n")
}

// certificates returns the options of each region's relay: a certificate that signs itself, its key, and all regions'
// as authorities.
func certificates(t *testing.T, regions ...string) (args map[string][]string) {
	t.Helper()
	args = make(map[string][]string)
	authorities := filepath.Join(t.TempDir(), "authorities")
	var all []byte
	for _, region := range regions {
		dir := t.TempDir()
		own := testcert.SelfSigned(t, region+".relays.test")
		all = append(all, own.Certificate...)
		own.Write(t, filepath.Join(dir, "certificate"), filepath.Join(dir, "key"))
		args[region] = []string{"--relay-peers-cert-file=" + filepath.Join(dir, "certificate"),
			"--relay-peers-key-file=" + filepath.Join(dir, "key"), "--relay-peers-ca-file=" + authorities}
	}
	write(t, authorities, all)
	return args
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
