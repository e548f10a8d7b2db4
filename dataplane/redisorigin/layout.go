package redisorigin

import (
	"cmp"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/shared/window"
)

// Options are all optional. All nodes of a region must use the same options.
type Options struct {
	// Prefix is the beginning of all keys: 1 to 64 printable ASCII characters without braces; "" means "weir". Set it to
	// keep fleets apart that share a server, for example "weir-staging".
	Prefix string

	// Grace is how long a key stays after its cell has expired; 0 means 30 s. It must exceed the difference between the
	// nodes' clocks and the server's. A higher value takes more memory.
	Grace time.Duration

	// Logger receives reports of unexpected values in keys; nil means slog.Default().
	Logger *slog.Logger
}

const (
	prefixDefault = "weir"
	graceDefault  = 30 * time.Second
)

// layout holds the settings that all partitions share: how cells are kept.
type layout struct {
	prefix string
	grace  time.Duration
	logger *slog.Logger

	garbage     atomic.Int64 // values read that were no counts
	garbageOnce sync.Once    // the first of them is logged
}

func newLayout(o Options) (*layout, error) {
	prefix := cmp.Or(o.Prefix, prefixDefault)
	if err := checkPrefix(prefix); err != nil {
		return nil, err
	}
	if o.Grace < 0 {
		return nil, fmt.Errorf("option Grace is %v, less than 0", o.Grace)
	}
	return &layout{prefix: prefix, grace: cmp.Or(o.Grace, graceDefault), logger: o.logger()}, nil
}

func (o Options) logger() *slog.Logger { return cmp.Or(o.Logger, slog.Default()) }

// expiresAtMs returns when the server drops a cell's key, in Unix milliseconds.
func (l *layout) expiresAtMs(c window.Cell, key string) int64 {
	return bounded(c.ExpiresAtMs() + (l.grace + jitter(key, c.Duration)).Milliseconds())
}
