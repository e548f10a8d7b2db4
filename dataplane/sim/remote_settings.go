package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

// remoteSettings is where a relay reads settings, and stores heartbeats.
type remoteSettings struct {
	from store.Settings
	*statements
}

// Settings implements store.Settings.
func (c *remoteSettings) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	var found store.SettingsRows
	err := c.call(ctx, "settings", func(ctx context.Context) (err error) {
		found, err = c.from.Settings(ctx, region)
		return err
	})
	if err != nil {
		return store.SettingsRows{}, err
	}
	return found, nil
}

// Heartbeat implements store.Settings.
func (c *remoteSettings) Heartbeat(ctx context.Context, beats ...heartbeat.Beat) error {
	return c.call(ctx, "heartbeat", func(ctx context.Context) error { return c.from.Heartbeat(ctx, beats...) })
}

var errDatabase = errors.New("mysql: server has gone away")

// database is how the one MySQL behaves, whoever calls.
type database struct {
	mu     sync.Mutex
	delay  time.Duration // of every statement, besides the way
	failed float64       // share of statements that fail
	random *rand.Rand
}

func (d *database) embark(ctx context.Context, op string) error {
	delay, failed := d.draw()
	if failed {
		return fmt.Errorf("%s: %w", op, errDatabase)
	}
	if delay == 0 {
		return nil
	}
	return pause(ctx, delay, op)
}

func (d *database) draw() (delay time.Duration, failed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.delay, d.failed > 0 && d.random.Float64() < d.failed
}

func (d *database) set(delay time.Duration, failed float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay, d.failed = delay, failed
}
