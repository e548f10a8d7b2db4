package peers

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/hosts"
)

// Config configures the peers of a relay. Region and Peers must be set, and TLS too unless Plaintext is set.
type Config struct {
	Region string // the relay's own region; see store.CheckRegion
	Peers  []Peer // 1 to PeersMax, each of a different region

	// Listen is the host:port on which the relay receives rows; port 0 takes any free port. If it is empty, the relay only
	// sends.
	Listen string

	// TLS has the relay's own certificate and the authorities of the peers' certificates. Its Check reads the files again.
	TLS *TLS

	// Plaintext disables TLS, for example for tests on one machine. Listen and all addresses must then be on loopback.
	Plaintext bool

	Logger *slog.Logger // nil: logs nothing
}

// Peer is another region.
type Peer struct {
	Region string // see store.CheckRegion

	// Name is the name in the region's certificates: a DNS name or an IP address, 1 to NameBytesMax bytes, for example
	// eu.relays.example. The region's relays must prove it, whether this relay connects to them or they connect to this
	// relay. With Plaintext it is ignored.
	Name string

	// Addresses are the addresses of the region's relays, host:port, 1 to AddressesMax. The relay tries all of them, and
	// sends rows to each relay that leads a shard. Each attempt at a host name takes the next of its IP addresses.
	Addresses []string
}

// Limits of a Config.
const (
	PeersMax     = 64
	AddressesMax = 16
	NameBytesMax = 253
)

// Validate returns the first error, with the field and its bounds.
func (c *Config) Validate() error {
	if err := store.CheckRegion(c.Region); err != nil {
		return err
	}
	switch n := len(c.Peers); {
	case n < 1 || n > PeersMax:
		return fmt.Errorf("peers are %d (1 to %d)", n, PeersMax)
	case c.TLS == nil && !c.Plaintext:
		return errors.New("tls is not set: relays reach each other over mutual TLS, or with plaintext over loopback")
	case c.TLS != nil && c.Plaintext:
		return errors.New("plaintext and tls are both set")
	}
	if c.Listen != "" {
		if err := c.checkAddress("listen", c.Listen, 0); err != nil {
			return err
		}
	}
	regions := []string{c.Region}
	for i := range c.Peers {
		p := &c.Peers[i]
		if err := c.checkPeer(p); err != nil {
			return fmt.Errorf("peer %d: %w", i+1, err)
		}
		if slices.Contains(regions, p.Region) {
			return fmt.Errorf("peer %d: region %q appears twice, counting this region itself", i+1, p.Region)
		}
		regions = append(regions, p.Region)
	}
	return nil
}

func (c *Config) checkPeer(p *Peer) error {
	if err := store.CheckRegion(p.Region); err != nil {
		return err
	}
	if n := len(p.Name); !c.Plaintext && (n < 1 || n > NameBytesMax) {
		return fmt.Errorf("name is %d bytes long (1 to %d): it is the name that the region's certificates have", n,
			NameBytesMax)
	}
	if n := len(p.Addresses); n < 1 || n > AddressesMax {
		return fmt.Errorf("addresses are %d (1 to %d)", n, AddressesMax)
	}
	for i, address := range p.Addresses {
		if err := c.checkAddress("address", address, 1); err != nil {
			return err
		}
		if slices.Contains(p.Addresses[:i], address) {
			return fmt.Errorf("address %q appears twice", address)
		}
	}
	return nil
}

func (c *Config) checkAddress(field, address string, portMin uint64) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%s %q is not host:port", field, address)
	}
	if host == "" && portMin > 0 {
		return fmt.Errorf("%s %q has no host", field, address)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n < portMin {
		return fmt.Errorf("%s %q: port is %q (%d to 65535)", field, address, port, portMin)
	}
	if c.Plaintext && !hosts.Loopback(address) {
		return fmt.Errorf("%s %q is not on loopback, and plaintext is for loopback only", field, address)
	}
	return nil
}
