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

// Options are all optional. All nodes of a region must use the same ones.
type Options struct {
	// Prefix begins all keys, "weir" unless set; it keeps fleets apart that share a
	// server. 1 to 64 printable ASCII characters, no braces.
	Prefix string

	// Grace is how long a key stays after its cell has expired, 30 s unless set: it
	// must exceed how far the nodes' clocks and the server's may be apart.
	Grace time.Duration

	// Logger takes what should not be there; slog.Default unless set.
	Logger *slog.Logger
}

const (
	prefixDefault = "weir"
	graceDefault  = 30 * time.Second
)

// layout is what is the same in all partitions: how cells are kept.
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

// expiresAtMs is when a cell's key is forgotten, in Unix milliseconds.
func (l *layout) expiresAtMs(c window.Cell, key string) int64 {
	return bounded(c.ExpiresAtMs() + (l.grace + jitter(key, c.Duration)).Milliseconds())
}
