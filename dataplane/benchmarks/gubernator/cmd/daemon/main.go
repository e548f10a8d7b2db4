// Daemon is gubernator as a server: a single node that owns every key. It has all parts of gubernator's own program
// except traces, which that program fails to set up in the versions that are pinned here. GUBER_* in the environment
// configures it.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	guber "github.com/gubernator-io/gubernator/v2"
	"github.com/sirupsen/logrus"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		logrus.Fatal(err)
	}
}

func run(ctx context.Context) error {
	config, err := guber.SetupDaemonConfig(logrus.StandardLogger(), nil)
	if err != nil {
		return err
	}
	config.PeerDiscoveryType = "none"
	daemon, err := guber.SpawnDaemon(ctx, config)
	if err != nil {
		return err
	}
	defer daemon.Close()
	daemon.SetPeers([]guber.PeerInfo{{GRPCAddress: config.AdvertiseAddress}})
	<-ctx.Done()
	return nil
}
