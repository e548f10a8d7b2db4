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

// either is where a node with Redis and MySQL gets settings, and sends heartbeats: the origin, so that MySQL's load
// does not grow with nodes, and MySQL itself if the origin fails, has no settings, or has old ones. So operators reach
// nodes whose Redis is down.
type either struct {
	origin, store store.Settings
	interval      func() time.Duration // the settings interval in force

	relayed atomic.Bool // the origin's settings were new when they were last asked for: a relay is at work
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
	case errors.Is(err, store.ErrNoSettings): // says nothing beside an error
		return store.SettingsRows{}, storeErr
	}
	return store.SettingsRows{}, errors.Join(err, storeErr)
}

// Heartbeat implements store.Settings. What no relay takes from the origin goes to MySQL: a region without a relay is
// not silent.
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
