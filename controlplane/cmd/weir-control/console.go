package main

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/controlplane/console"
	"github.com/weirhq/weir/shared/clientip"
)

// consoleOf makes the console of an API and starts it, if it is configured.
func (p *process) consoleOf(c *api.Config) error {
	if !p.config.Console {
		return nil
	}
	trusted, err := trustedProxies(p.config.APITrustedProxies)
	if err != nil {
		return err
	}
	c.Console = func(service http.Handler) http.Handler {
		con := console.New(console.Config{Service: service, Log: p.log, Version: version(), TrustedProxies: trusted,
			StillValid: p.stillValid})
		p.work.Go(func() { con.Run(p.ctx) })
		return con
	}
	return nil
}

// trustedProxies reads addresses and networks.
func trustedProxies(texts []string) (trusted []netip.Prefix, err error) {
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		if err != nil {
			at, atErr := netip.ParseAddr(text)
			if atErr != nil {
				return nil, fmt.Errorf("api-trusted-proxies: %.80q is neither an address nor a network such as 10.0.0.0/8", text)
			}
			network = netip.PrefixFrom(at, at.BitLen())
		}
		trusted = append(trusted, network)
	}
	return clientip.Trust(trusted), nil
}
