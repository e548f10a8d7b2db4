package redisorigin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// errNoPolicy is returned for a server whose INFO lacks maxmemory_policy, as on some hosted
// servers.
var errNoPolicy = errors.New("INFO memory does not report maxmemory_policy")

// Evicting returns the servers that may delete keys when their memory is full, each with its
// policy. Such a server loses counts without an error. err names the servers whose policy is
// unknown, because they do not answer or the user may not run INFO.
func (h *Origin) Evicting(ctx context.Context) (servers []string, err error) {
	var mu sync.Mutex
	look := func(ctx context.Context, where string, client redis.Cmdable) error {
		policy, err := evictionPolicy(ctx, client)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && policy != "noeviction" {
			servers = append(servers, fmt.Sprintf("%s (%.40s)", where, policy))
		}
		return err
	}
	var unknown []error
	for _, s := range h.shards {
		err := error(nil)
		if cluster, ok := s.client.(*redis.ClusterClient); ok {
			err = cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
				return look(ctx, c.Options().Addr, c)
			})
		} else {
			err = look(ctx, s.where, s.client)
		}
		if err != nil {
			unknown = append(unknown, fmt.Errorf("redisorigin: read the eviction policy of %s: %w", s.where, err))
		}
	}
	slices.Sort(servers)
	return servers, errors.Join(unknown...)
}

func evictionPolicy(ctx context.Context, client redis.Cmdable) (string, error) {
	text, err := client.Info(ctx, "memory").Result()
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(text) {
		if policy, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "maxmemory_policy:"); ok {
			return policy, nil
		}
	}
	return "", errNoPolicy
}
