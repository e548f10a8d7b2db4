package redisorigin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Open returns an Origin on clients of its own, made of ClientOptions, of one server or of several independent ones,
// see New. Each is a name and a URL as ClientOptions takes it, in any order; a single one needs no name:
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
	targets, err := parseTargets(namesAndURLs)
	if err != nil {
		return nil, err
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
		partitions[i] = Partition{Name: t.name, Client: redis.NewUniversalClient(t.options), where: t.where()}
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
	_, err := parseTargets(namesAndURLs)
	return err
}

// target is a partition as it is configured.
type target struct {
	name    string
	options *redis.UniversalOptions
}

func parseTargets(namesAndURLs []string) ([]target, error) {
	targets := make([]target, len(namesAndURLs))
	for i, s := range namesAndURLs {
		targets[i].name, _ = SplitName(s)
	}
	if err := checkNames(targets, func(t target) string { return t.name }); err != nil {
		return nil, fmt.Errorf("redisorigin: %w", err)
	}
	for i, s := range namesAndURLs {
		_, rawURL := SplitName(s)
		options, err := ClientOptions(rawURL)
		if err != nil {
			return nil, wrapName(targets[i].name, err)
		}
		targets[i].options = options
	}
	return targets, nil
}

// SplitName cuts "name=redis://…" into its name, "" if there is none, and its URL.
func SplitName(nameAndURL string) (name, rawURL string) {
	name, rawURL, ok := strings.Cut(nameAndURL, "=")
	if !ok || strings.ContainsAny(name, ":/?@") { // the parameters of a URL without a name
		return "", nameAndURL
	}
	return name, rawURL
}

func (t target) where() string {
	addresses := strings.Join(t.options.Addrs, ",")
	if t.options.MasterName != "" {
		return t.options.MasterName + " by " + addresses
	}
	return addresses
}

// libraryLogger is go-redis's logger.
type libraryLogger struct{ *slog.Logger }

// Printf is called by the library.
func (l libraryLogger) Printf(ctx context.Context, format string, v ...any) {
	if l.Enabled(ctx, slog.LevelDebug) {
		l.DebugContext(ctx, fmt.Sprintf(format, v...), "library", "go-redis")
	}
}
