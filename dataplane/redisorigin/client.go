package redisorigin

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/shared/redisclient"
)

// FileError is returned if a file named in a Redis URL cannot be used: see redisclient.FileError.
type FileError = redisclient.FileError

// ClientOptions returns the options of a client that suits New, from a URL of the forms that package redisclient
// documents. No error holds the password.
func ClientOptions(rawURL string) (*redis.UniversalOptions, error) {
	o, err := redisclient.Options(rawURL)
	if err != nil {
		return nil, fmt.Errorf("redisorigin: %w", err)
	}
	return o, nil
}

var (
	errRetries = errors.New("the client repeats commands whose reply was lost, which doubles counts: set MaxRetries to " +
		"-1, and MaxRedirects too on a Cluster")
	errDeadline = errors.New("the client ignores deadlines: set ContextTimeoutEnabled")
)

// suitable reports whether a client is a Cluster's, and whether it meets the contract.
func suitable(client redis.UniversalClient) (cluster bool, err error) {
	switch c := client.(type) {
	case *redis.Client:
		o := c.Options()
		return false, misfit(o.MaxRetries, o.ContextTimeoutEnabled)
	case *redis.ClusterClient:
		o := c.Options()
		if o.ReadOnly {
			return true, errors.New("the client reads from replicas, which lag behind")
		}
		return true, misfit(o.MaxRedirects, o.ContextTimeoutEnabled)
	default:
		return false, fmt.Errorf("the client is a %T, want a *redis.Client or a *redis.ClusterClient", client)
	}
}

func misfit(repeats int, deadlines bool) error {
	switch {
	case repeats > 0:
		return errRetries
	case !deadlines:
		return errDeadline
	}
	return nil
}
