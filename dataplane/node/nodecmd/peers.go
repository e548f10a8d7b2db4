package nodecmd

import (
	"fmt"
	"log/slog"
	"strings"

	"github.com/weirhq/weir/dataplane/relay/peers"
	"github.com/weirhq/weir/shared/strict"
)

// openPeers makes the peers of this node's relay, nil without relay-peers.
func openPeers(config Config, logger *slog.Logger) (*peers.Peers, *peers.TLS, error) {
	if config.RelayPeers == "" {
		return nil, nil, nil
	}
	others, err := config.relayPeers()
	if err != nil {
		return nil, nil, err
	}
	var identity *peers.TLS
	if config.RelayPeersCertFile != "" {
		identity, err = peers.OpenTLS(config.RelayPeersCertFile, config.RelayPeersKeyFile, config.RelayPeersCAFile)
		if err != nil {
			return nil, nil, fmt.Errorf("relay-peers-cert-file: %w", err)
		}
	}
	p, err := peers.New(peers.Config{Region: config.Region, Peers: others, Listen: config.RelayPeersListen,
		TLS: identity, Plaintext: identity == nil, Logger: logger})
	return p, identity, err
}

// relayPeers returns the regions in relay-peers, which are separated by blanks.
func (c Config) relayPeers() (others []peers.Peer, err error) {
	for word := range strings.FieldsSeq(c.RelayPeers) {
		region, addresses, ok := strings.Cut(word, "=")
		if !ok || region == "" || addresses == "" {
			return nil, fmt.Errorf("relay-peers: %q is not region=host:port[,host:port]", word)
		}
		for address := range strings.SplitSeq(addresses, ",") {
			if err := strict.Address("relay-peers: the address of "+region, address); err != nil {
				return nil, err
			}
		}
		name := region
		if c.RelayPeersDomain != "" {
			name += "." + c.RelayPeersDomain
		}
		others = append(others, peers.Peer{Region: region, Name: name, Addresses: strings.Split(addresses, ",")})
	}
	return others, nil
}

// checkPeers reads no file: openPeers does.
func (c Config) checkPeers(p *problems) {
	files := []string{c.RelayPeersCertFile, c.RelayPeersKeyFile, c.RelayPeersCAFile}
	if c.RelayPeers == "" {
		for _, o := range []struct{ name, value string }{{"listen", c.RelayPeersListen}, {"domain", c.RelayPeersDomain},
			{"cert-file", files[0]}, {"key-file", files[1]}, {"ca-file", files[2]}} {
			if o.value != "" {
				p.add("relay-peers-%s is set and relay-peers is not: name the regions", o.name)
			}
		}
		return
	}
	if c.RedisURL == "" || c.MySQLDSN == "" {
		p.add("relay-peers needs redis-url and mysql-dsn: a node without both has no relay")
	}
	encrypted := strings.Join(files, "") != ""
	if encrypted && (files[0] == "" || files[1] == "" || files[2] == "") {
		p.add("relay-peers-cert-file, relay-peers-key-file and relay-peers-ca-file: set all, or none for plaintext on " +
			"loopback")
	}
	if err := c.validatePeers(encrypted); err != nil {
		*p = append(*p, err)
	}
}

func (c Config) validatePeers(encrypted bool) error {
	others, err := c.relayPeers()
	if err != nil {
		return err
	}
	checked := peers.Config{Region: c.Region, Peers: others, Listen: c.RelayPeersListen, Plaintext: !encrypted}
	if encrypted {
		checked.TLS = new(peers.TLS)
	}
	if err := checked.Validate(); err != nil {
		return fmt.Errorf("relay-peers: %w", err)
	}
	return nil
}
