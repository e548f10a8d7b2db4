package nodecmd

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

const (
	// eitherTimeout bounds the call to the first store, so that time is left for the second.
	eitherTimeout = 2 * time.Second
	// staleIntervals is after how many settings intervals a copy at the origin is too old: no relay renews it.
	staleIntervals = 3
)

// either reads settings and sends heartbeats for a node with Redis and MySQL. It uses the origin, so that MySQL's load
// does not grow with the number of nodes. It uses MySQL if the origin fails, has no settings, or has old settings, so
// that operators also reach nodes whose Redis is down.
type either struct {
	origin, store store.Settings
	interval      func() time.Duration // the settings interval in force

	relayed atomic.Bool // the origin's settings were new at the last read, so a relay is working
}

// Settings implements store.Settings. Old settings are better than none.
func (e *either) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	first, cancel := context.WithTimeout(ctx, eitherTimeout)
	defer cancel()
	rows, err := e.origin.Settings(first, region)
	relayed := err == nil && rows.Age <= staleIntervals*e.interval()
	e.relayed.Store(relayed)
	if relayed {
		return rows, nil
	}
	stored, storeErr := e.store.Settings(ctx, region)
	switch {
	case storeErr == nil:
		return stored, nil
	case err == nil:
		return rows, nil
	case errors.Is(err, store.ErrNoSettings): // not worth mentioning next to another error
		return store.SettingsRows{}, storeErr
	}
	return store.SettingsRows{}, errors.Join(err, storeErr)
}

// Heartbeat implements store.Settings. If no relay takes heartbeats from the origin, they are sent to MySQL, so that a
// region without a relay still reports.
func (e *either) Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error {
	one, other := e.origin, e.store
	if !e.relayed.Load() {
		one, other = other, one
	}
	first, cancel := context.WithTimeout(ctx, eitherTimeout)
	defer cancel()
	err := one.Heartbeat(first, beats...)
	if err == nil {
		return nil
	}
	if otherErr := other.Heartbeat(ctx, beats...); otherErr != nil {
		return errors.Join(err, otherErr)
	}
	return nil
}
