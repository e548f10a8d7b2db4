package nodecmd

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/node"
	"github.com/weirhq/weir/dataplane/relay"
	"github.com/weirhq/weir/dataplane/relay/peers"
)

// releaseTimeout is how long the end of a relay may take: a lease that is not released ends by itself.
const releaseTimeout = 2 * time.Second

// regions are this node's way to other regions: a relay, and its peers. The zero value is that of a node without Redis
// or without MySQL, which needs neither.
type regions struct {
	relay *relay.Relay
	peers *peers.Peers // nil without relay-peers
	tls   *peers.TLS   // nil without certificates
}

// relays reports whether the node has both stores, which need a relay between them.
func (s *stores) relays() bool { return s.origin != nil && s.feed != nil }

// newRegions makes this node's relay if it has both stores. Each node of a region has a relay; for each shard only the
// relay that holds the shard's lease works.
func newRegions(config Config, stores *stores, limiter *dataplane.Limiter, logger *slog.Logger) (r regions, err error) {
	if !stores.relays() {
		return r, nil
	}
	if r.peers, r.tls, err = openPeers(config, logger); err != nil {
		return r, err
	}
	c := relay.Config{
		Region: config.Region, Holder: config.NodeID,
		Origin: stores.origin, Feed: stores.feed, Counts: stores.counts, Settings: stores.settings,
		Tuning: func() relay.Tuning {
			t := limiter.RelayTuning()
			return relay.Tuning{Interval: t.FeedInterval, SettingsInterval: t.SettingsInterval, Floor: t.Floor, Step: t.Step,
				MinGlobalDuration: t.MinGlobalDuration, StoreFloor: relay.StoreFloor, StoreSteps: relay.StoreSteps}
		},
		TuningChanged: limiter.TuningChanged,
		Logger:        logger,
	}
	if r.peers != nil {
		c.Publish = r.peers.Publish
	}
	if r.relay, err = relay.New(c); err != nil {
		return r, fmt.Errorf("make the relay: %w", err)
	}
	return r, nil
}

// collectors returns the metrics of both.
func (r regions) collectors() (all []prometheus.Collector) {
	if r.relay != nil {
		all = append(all, r.relay.Collector())
	}
	if r.peers != nil {
		all = append(all, r.peers.Collector())
	}
	return all
}

// reloads returns the reload of the peers' certificates, if there are any.
func (r regions) reloads() []node.Reload {
	if r.tls == nil {
		return nil
	}
	return []node.Reload{{Name: "relay peers", Check: r.tls.Check}}
}

func (r regions) start(ctx context.Context, logger *slog.Logger) error {
	if r.relay == nil {
		return nil
	}
	if err := r.relay.Start(ctx); err != nil {
		return fmt.Errorf("start the relay: %w", err)
	}
	if r.peers == nil {
		return nil
	}
	if err := r.peers.Start(ctx, r.relay); err != nil {
		return err
	}
	if a := r.peers.Addr(); a != nil {
		logger.Info("listening for relays of other regions", "relay_peers_listen", a.String())
	}
	return nil
}

// stop ends both, even if start has failed. Counts that the relay has not published yet stay in Redis for the next
// relay.
func (r regions) stop(logger *slog.Logger) {
	if r.relay == nil {
		return
	}
	if r.peers != nil {
		r.peers.Stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	if err := r.relay.Stop(ctx); err != nil {
		logger.Warn("the relay's lease could not be released; it expires by itself", "error", err)
	}
}
