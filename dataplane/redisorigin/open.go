package redisorigin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/shared/redisclient"
)

// Open returns an Origin on clients of its own, of one server or of several independent ones, see New. It takes what
// redis-url of weir-node takes, the name and the URL of each partition, in any order; a single one needs no name. Names
// and URLs may stand in one list, separated by blanks, or be an argument each:
//
//	origin, err := redisorigin.Open([]string{
//		"a=redis://10.0.0.1:6379",
//		"b=redis://10.0.0.2:6379",
//	}, redisorigin.Options{})
//
// It does not wait for a server: a node starts, and decides, without it.
//
// The client library has one logger for the whole process; Open sets it to o.Logger,
// at level debug: what the library reports, a call's error says too.
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

// CheckURLs reports what Open would refuse, and connects to nothing.
func CheckURLs(namesAndURLs []string) error {
	if _, err := redisclient.Targets(namesAndURLs...); err != nil {
		return fmt.Errorf("redisorigin: %w", err)
	}
	return nil
}

// libraryLogger is go-redis's logger.
type libraryLogger struct{ *slog.Logger }

// Printf is called by the library.
func (l libraryLogger) Printf(ctx context.Context, format string, v ...any) {
	if l.Enabled(ctx, slog.LevelDebug) {
		l.DebugContext(ctx, fmt.Sprintf(format, v...), "library", "go-redis")
	}
}
