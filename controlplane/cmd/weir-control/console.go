package main

import (
	"context"
	"net/http"
	"time"

	"github.com/weirhq/weir/controlplane/api"
	"github.com/weirhq/weir/controlplane/console"
	"github.com/weirhq/weir/dataplane"
)

// How often one address, and all of them together, may try to sign in to the console.
// Tokens cannot be guessed; what is spared is the database that each try asks.
const (
	attemptsPerAddress = 10
	attemptsTogether   = 100
	attemptsWindow     = time.Minute
	addressesMax       = 10_000
)

// consoleOf makes the console of an API and sets it going, if it is wanted.
func (p *process) consoleOf(c *api.Config) error {
	if !p.config.Console {
		return nil
	}
	limiter, err := dataplane.New(dataplane.Config{EntriesMax: addressesMax, Logger: p.log})
	if err != nil {
		return err
	}
	if err := limiter.Start(p.ctx); err != nil {
		return err
	}
	p.work.Go(func() {
		<-p.ctx.Done()
		_ = limiter.Stop(context.WithoutCancel(p.ctx)) // a limiter alone has nothing to send
	})
	c.Console = func(service http.Handler) http.Handler {
		con := console.New(console.Config{Service: service, Gate: gate{limiter}, Log: p.log, Version: version()})
		p.work.Go(func() { con.Run(p.ctx) })
		return con
	}
	return nil
}

// gate is a limiter of this process alone, which is what Weir is without any servers.
type gate struct{ limiter *dataplane.Limiter }

func (g gate) Allow(ctx context.Context, address string) (ok bool, retryAfter time.Duration) {
	one := dataplane.Request{Workspace: "weir-control", Namespace: "console.sign-in", Identifier: "address " + address, Limit: attemptsPerAddress, Duration: attemptsWindow, Cost: 1}
	all := one
	all.Identifier, all.Limit = "all", attemptsTogether
	batch := g.limiter.AllowMany(ctx, []dataplane.Request{one, all})
	for _, d := range batch.Decisions {
		retryAfter = max(retryAfter, d.RetryAfter)
	}
	return batch.Allowed, retryAfter
}
