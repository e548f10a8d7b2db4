package redisorigin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/shared/redisclient"
)

// Open returns an Origin with its own clients, for one server or for several independent ones: see New. It accepts the
// same text as weir-node's redis-url: the name and URL of each partition, in any order. A single partition needs no
// name. Names and URLs can be in a single string, separated by blanks, or each in its own argument:
//
//	origin, err := redisorigin.Open([]string{
//		"a=redis://10.0.0.1:6379",
//		"b=redis://10.0.0.2:6379",
//	}, redisorigin.Options{})
//
// Open does not wait for a server, so a node can start and decide without it.
//
// The client library has a single logger for the whole process, and Open sets it to o.Logger at level debug. The errors
// of calls contain the same information.
func Open(namesAndURLs []string, o Options) (*Origin, error) {
	targets, err := redisclient.Targets(namesAndURLs...)
	if err != nil {
		return nil, fmt.Errorf("redisorigin: %w", err)
	}
	redis.SetLogger(libraryLogger{o.logger()})
	partitions := make([]Partition, len(targets))
	closeAll := func() (err error) {
		for _, p := range partitions {
			err = errors.Join(err, p.Client.Close())
		}
		return err
	}
	for i, t := range targets {
		partitions[i] = Partition{Name: t.Name, Client: t.Open(), where: t.Where()}
	}
	origin, err := New(partitions, o)
	if err != nil {
		return nil, errors.Join(err, closeAll())
	}
	origin.owned = true
	return origin, nil
}

// libraryLogger is go-redis's logger.
type libraryLogger struct{ *slog.Logger }

// Printf is called by the library.
func (l libraryLogger) Printf(ctx context.Context, format string, v ...any) {
	if l.Enabled(ctx, slog.LevelDebug) {
		l.DebugContext(ctx, fmt.Sprintf(format, v...), "library", "go-redis")
	}
}
