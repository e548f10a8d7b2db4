package nodecmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/weirhq/weir/dataplane/mysqlcounts"
	"github.com/weirhq/weir/dataplane/node/routes"
	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// stores are the limiter's two upper layers, as far as they are configured.
type stores struct {
	origin     store.FullOrigin // nil without Redis
	counts     store.CountStore // nil without MySQL
	feed       store.Feed       // nil without MySQL
	settings   store.Settings   // nil without MySQL, unless there is a file or the routes change overrides
	file       *settingsFile    // nil without settings-file
	overrides  routes.Overrides // nil: the routes do not change any
	collectors []prometheus.Collector
	closers    []io.Closer
}

// openStores does not wait for a server. A server that is down is used as soon as it is up.
func openStores(config Config, logger *slog.Logger) (s *stores, err error) {
	s = new(stores)
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if config.RedisURL != "" {
		origin, err := redisorigin.Open([]string{config.RedisURL}, redisorigin.Options{Logger: logger})
		if err != nil {
			return s, fmt.Errorf("redis-url %w", redisURLError(err))
		}
		s.origin = origin
		s.collectors = append(s.collectors, origin.Collector())
		s.closers = append(s.closers, origin)
	}
	if config.MySQLDSN != "" {
		db, err := mysqlcounts.Open(config.MySQLDSN)
		if err != nil {
			return s, fmt.Errorf("mysql-dsn: %w", err)
		}
		s.closers = append(s.closers, db)
		s.collectors = append(s.collectors, collectors.NewDBStatsCollector(db, "weir"))
		counts := mysqlcounts.New(db, mysqlcounts.Options{})
		s.counts, s.feed, s.settings = counts, counts.Feed(), counts
		s.collectors = append(s.collectors, counts)
		if config.V2Overrides {
			if err := s.openOverrides(config.MySQLDSN); err != nil {
				return s, err
			}
		}
	}
	return s, s.openAlone(config)
}

// overrideConnsMax bounds the connections to MySQL of the routes that read and change overrides.
const overrideConnsMax = 2

// openOverrides opens a pool of its own for the routes that read and change overrides. Many of
// their calls may wait for its connections or for the audit log's lock, so the relay, settings and
// heartbeats use another pool.
func (s *stores) openOverrides(dsn string) error {
	db, err := mysqlcounts.Open(dsn)
	if err != nil {
		return fmt.Errorf("mysql-dsn: %w", err)
	}
	db.SetMaxOpenConns(overrideConnsMax)
	db.SetMaxIdleConns(overrideConnsMax)
	s.closers = append(s.closers, db)
	s.collectors = append(s.collectors, collectors.NewDBStatsCollector(db, "weir_overrides"))
	s.overrides = routes.MySQL{DB: db}
	return nil
}

// openAlone opens the source of settings for a node without MySQL and Redis.
func (s *stores) openAlone(config Config) (err error) {
	switch {
	case config.SettingsFile != "":
		if s.file, err = openSettingsFile(config.SettingsFile); err != nil {
			return fmt.Errorf("settings-file: %w", err)
		}
		s.settings = s.file.Source()
	case config.V2Overrides && config.MySQLDSN == "":
		memory := new(routes.Memory)
		s.settings, s.overrides = memory, memory
	}
	return nil
}

func (s *stores) close() {
	for _, c := range s.closers {
		_ = c.Close() // the drain has sent everything before
	}
}

// probeTimeout is how long Redis may take for its first answer.
const probeTimeout = 3 * time.Second

// probe logs a warning for each Redis that does not answer, by its name. The relay reports a MySQL that does not, or
// the limiter, where Redis has no new settings.
func (s *stores) probe(ctx context.Context, logger *slog.Logger) {
	if s.origin == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	var probes sync.WaitGroup
	for _, cell := range probed(s.origin) {
		probes.Go(func() {
			if _, err := s.origin.Read(ctx, []window.Cell{cell}); err != nil && !errors.Is(err, context.Canceled) {
				logger.Warn("Redis does not answer; deciding from this node's own counts until it does", "error", err)
			}
		})
	}
	probes.Wait()
}

// probed returns a cell without cost for each shard.
func probed(origin store.Origin) []window.Cell {
	cells := make([]window.Cell, origin.Shards())
	for found, i := 0, 0; found < len(cells); i++ {
		c := window.Cell{Key: window.Key{Workspace: "weir", Namespace: "probe", Identifier: strconv.Itoa(i),
			Duration: time.Second}}
		if n := origin.ShardOf(&c.Key); cells[n] == (window.Cell{}) {
			cells[n], found = c, found+1
		}
	}
	return cells
}
