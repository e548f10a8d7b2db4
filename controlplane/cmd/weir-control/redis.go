package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/controlplane"
)

// redisTimeout bounds the calls to one Redis.
const redisTimeout = 3 * time.Second

// validRedisURL refuses what has no place on a command line, without repeating it.
func validRedisURL(region, text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" || u.Host == "" {
		return fmt.Errorf("redis-url of %s is not a URL like redis://host:port", region)
	}
	if _, secret := u.User.Password(); secret {
		return fmt.Errorf("redis-url of %s has a password, which every list of processes would show: put it into "+
			"redis-password-file", region)
	}
	return nil
}

// examineRedis checks the regions' Redis. The control plane has no other use for them,
// so who may not reach them is not told to this process at all, and nothing is checked.
func examineRedis(urls map[string]string, passwordFile string) controlplane.Examiner {
	return func(ctx context.Context) (checks []controlplane.Check) {
		if len(urls) == 0 {
			return []controlplane.Check{{Name: "configured", Result: controlplane.CheckWarn,
				What: "no region's Redis is known to weir-control",
				Do:   "Set redis-url, if this machine may reach them: REGION=redis://host:port."}}
		}
		password := ""
		if passwordFile != "" {
			b, err := os.ReadFile(passwordFile)
			if err != nil {
				return []controlplane.Check{redisFail("password", err.Error(), "Correct redis-password-file.")}
			}
			password = strings.TrimSpace(string(b))
		}
		for _, region := range slices.Sorted(maps.Keys(urls)) {
			for _, c := range examineOneRedis(ctx, urls[region], password) {
				c.Name = region + " " + c.Name
				checks = append(checks, c)
			}
		}
		return checks
	}
}

func examineOneRedis(ctx context.Context, url, password string) []controlplane.Check {
	quiet()
	options, err := redis.ParseURL(url)
	if err != nil {
		return []controlplane.Check{redisFail("reachable", "redis-url cannot be used", "Correct redis-url.")}
	}
	options.Password = cmp.Or(password, options.Password)
	// a pool as small as its errors would dial on behind our back
	options.DialTimeout, options.ReadTimeout, options.MaxRetries, options.DialerRetries, options.PoolSize = redisTimeout,
		redisTimeout, -1, 1, 4
	ctx, cancel := context.WithTimeout(ctx, redisTimeout)
	defer cancel()
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	text, err := client.Info(ctx).Result()
	if err != nil {
		return []controlplane.Check{redisFail("reachable", err.Error(),
			"Start that Redis, let this machine reach it, or correct redis-url and redis-password-file.")}
	}
	info := readInfo(text)
	checks := append([]controlplane.Check{redisOK("reachable", options.Addr)}, infoChecks(info)...)
	if info["cluster_enabled"] == "1" {
		state, err := client.ClusterInfo(ctx).Result()
		if err != nil {
			return append(checks, redisFail("cluster", err.Error(), "Grant the Redis user the command CLUSTER INFO."))
		}
		checks = append(checks, clusterCheck(readInfo(state)))
	}
	return checks
}

// quiet keeps the client's own words out of the log: what they say is in the checks.
var quiet = sync.OnceFunc(func() { redis.SetLogger(silence{}) })

type silence struct{}

// Printf implements the client's logger.
func (silence) Printf(context.Context, string, ...any) {}

// readInfo reads what INFO and CLUSTER INFO answer: a line each, name:value.
func readInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok && !strings.HasPrefix(name, "#") {
			info[name] = value
		}
	}
	return info
}

// infoChecks judges version, eviction and memory.
func infoChecks(info map[string]string) []controlplane.Check {
	version := redisOK("version", info["redis_version"])
	if major, err := strconv.Atoi(strings.SplitN(info["redis_version"], ".", 2)[0]); err != nil || major < 6 {
		version = redisWarn("version", fmt.Sprintf("%.40q", info["redis_version"]),
			"Weir is tested with Redis 7; upgrade from anything before 6.")
	}
	policy, bounded := info["maxmemory_policy"], info["maxmemory"] != "0" && info["maxmemory"] != ""
	eviction := redisOK("eviction", policy)
	if policy != "noeviction" {
		const do = "CONFIG SET maxmemory-policy noeviction, and in its configuration file: an evicted count starts again " +
			"at 0."
		eviction = redisWarn("eviction", fmt.Sprintf("%.40q, without maxmemory to make it act", policy), do)
		if bounded {
			eviction = redisFail("eviction", fmt.Sprintf("%.40q with maxmemory %.40s", policy, info["maxmemory"]), do)
		}
	}
	memory := redisOK("memory", fmt.Sprintf("%s used of %s", info["used_memory_human"], info["maxmemory_human"]))
	used, _ := strconv.ParseFloat(info["used_memory"], 64)
	most, _ := strconv.ParseFloat(info["maxmemory"], 64)
	switch {
	case !bounded:
		memory = redisWarn("memory", info["used_memory_human"]+" used, without a limit",
			"Set maxmemory below the machine's memory: otherwise the kernel kills Redis when memory runs out.")
	case most > 0 && used > 0.9*most:
		memory = redisFail("memory", fmt.Sprintf("%s used of %s", info["used_memory_human"], info["maxmemory_human"]),
			"Raise maxmemory: with noeviction Redis refuses writes when it is full, and nodes decide by their own counts.")
	}
	return []controlplane.Check{version, eviction, memory}
}

func clusterCheck(info map[string]string) controlplane.Check {
	if state := info["cluster_state"]; state != "ok" {
		return redisFail("cluster", fmt.Sprintf("cluster_state is %.40q, %s of %s slots are ok", state,
			info["cluster_slots_ok"], info["cluster_slots_assigned"]),
			"See CLUSTER NODES: keys of the slots that are not served are decided locally.")
	}
	return redisOK("cluster", info["cluster_size"]+" masters, all slots are served")
}

func redisOK(name, what string) controlplane.Check {
	return controlplane.Check{Name: name, Result: controlplane.CheckOK, What: what}
}

func redisWarn(name, what, do string) controlplane.Check {
	return controlplane.Check{Name: name, Result: controlplane.CheckWarn, What: what, Do: do}
}

func redisFail(name, what, do string) controlplane.Check {
	return controlplane.Check{Name: name, Result: controlplane.CheckFail, What: what, Do: do}
}
