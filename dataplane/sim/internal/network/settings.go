package network

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

// Settings is where a relay reads settings, and stores heartbeats.
type Settings struct {
	From store.Settings
	*Statements
}

// Settings implements store.Settings.
func (c *Settings) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	return query(ctx, c.Statements, "settings", func(ctx context.Context) (store.SettingsRows, error) {
		return c.From.Settings(ctx, region)
	})
}

// Heartbeat implements store.Settings.
func (c *Settings) Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error {
	return c.call(ctx, "heartbeat", func(ctx context.Context) error { return c.From.Heartbeat(ctx, beats...) })
}

var errDatabase = errors.New("mysql: server has gone away")

// Database is the state of MySQL, for all callers.
type Database struct {
	mu     sync.Mutex
	delay  time.Duration // of every statement, in addition to the link's
	failed float64       // share of statements that fail
	Random *rand.Rand
}

func (d *Database) embark(ctx context.Context, op string) error {
	delay, failed := d.draw()
	if failed {
		return fmt.Errorf("%s: %w", op, errDatabase)
	}
	if delay == 0 {
		return nil
	}
	return Pause(ctx, delay, op)
}

func (d *Database) draw() (delay time.Duration, failed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.delay, d.failed > 0 && d.Random.Float64() < d.failed
}

// Set changes the delay and the failures of statements that begin afterwards.
func (d *Database) Set(delay time.Duration, failed float64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay, d.failed = delay, failed
}
