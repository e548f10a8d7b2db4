package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/controlplane/watch"
	"github.com/weirhq/weir/shared/redisclient"
	"github.com/weirhq/weir/shared/strict"
)

// redisTimeout bounds the calls to a Redis, or to all masters of a Cluster.
const redisTimeout = 3 * time.Second

// targetsAtOnce bounds how many targets are examined at a time.
const targetsAtOnce = 16

// regionBytesMax is the nodes' own bound.
const regionBytesMax = 48

// validRedisURL returns an error for a URL that a node would reject, and for a URL with a password, because other users
// can read command lines. The error does not contain the password.
func validRedisURL(region, list string) error {
	if err := strict.Name("redis-url: the region", region, regionBytesMax); err != nil {
		return err
	}
	if redisclient.HoldsPassword(list) {
		return fmt.Errorf("redis-url of %s has a password, which every list of processes would show: put it into "+
			"redis-password-file", strict.Quote(region))
	}
	var file *redisclient.FileError
	if _, err := redisclient.Targets(list); err != nil && !errors.As(err, &file) { // the doctor reports files
		return fmt.Errorf("redis-url of %s is not a URL like redis://host:port: %w", strict.Quote(region), err)
	}
	return nil
}

// examineRedis checks the regions' Redis. The control plane has no other use for them. An operator who does not want it
// to reach them leaves them out of the configuration, and then nothing is checked.
func examineRedis(urls map[string]string, passwordFile string) watch.Examiner {
	return func(ctx context.Context) []watch.Check {
		if len(urls) == 0 {
			return []watch.Check{watch.Warn("configured", "weir-control has the address of no region's Redis",
				"Set redis-url, if this machine may reach them: REGION=redis://host:port.")}
		}
		password := ""
		if passwordFile != "" {
			var err error
			if password, err = strict.Line("redis-password-file", passwordFile); err != nil {
				return []watch.Check{watch.Fail("password", err.Error(), "Correct redis-password-file.")}
			}
		}
		slots := make(chan struct{}, targetsAtOnce)
		return examineEach(slices.Sorted(maps.Keys(urls)), func(region string) (string, []watch.Check) {
			return region, examineRegion(ctx, urls[region], password, slots)
		})
	}
}

// examineEach examines all of a list at once, so that a target that hangs uses up only its own time. It returns the
// checks in the order of the list. examine returns a name to put before the names of its checks, or "".
func examineEach[T any](list []T, examine func(T) (string, []watch.Check)) []watch.Check {
	found := make([][]watch.Check, len(list))
	var examining sync.WaitGroup
	for i, of := range list {
		examining.Go(func() {
			name, checks := examine(of)
			for _, c := range checks {
				if name != "" {
					c.Name = name + " " + c.Name
				}
				found[i] = append(found[i], c)
			}
		})
	}
	examining.Wait()
	return slices.Concat(found...)
}

// examineRegion checks a region's servers, each in a slot of its own. The names of the checks contain the
// server's name.
func examineRegion(ctx context.Context, list, password string, slots chan struct{}) []watch.Check {
	quiet()
	targets, err := redisclient.Targets(list)
	if err != nil {
		return []watch.Check{watch.Fail("reachable", "redis-url cannot be used: "+err.Error(), "Correct redis-url.")}
	}
	return examineEach(targets, func(target redisclient.Target) (string, []watch.Check) {
		slots <- struct{}{}
		defer func() { <-slots }()
		return target.Name, examineTarget(ctx, target, password)
	})
}

// examineTarget checks a server, or the masters of a Cluster.
func examineTarget(area context.Context, target redisclient.Target, password string) []watch.Check {
	if o := target.Options; password != "" && o.CredentialsProviderContext == nil {
		o.Password = password
	}
	// a smaller pool would dial in the background
	target.Options.PoolSize, target.Options.MinIdleConns = 4, 0
	ctx, cancel := context.WithTimeout(area, redisTimeout)
	defer cancel()
	client := target.Open()
	defer func() { _ = client.Close() }()
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		return examineServer(ctx, target.Where(), "", client)
	}
	var mu sync.Mutex
	var checks []watch.Check
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		found := examineServer(ctx, c.Options().Addr, c.Options().Addr+" ", c)
		mu.Lock()
		defer mu.Unlock()
		checks = append(checks, found...)
		return nil
	})
	if err == nil && len(checks) == 0 {
		err = errors.New("it has no masters")
	}
	if err != nil {
		return []watch.Check{unreachable(err)}
	}
	slices.SortStableFunc(checks, func(a, b watch.Check) int {
		return strings.Compare(strings.SplitN(a.Name, " ", 2)[0], strings.SplitN(b.Name, " ", 2)[0])
	})
	ctx, cancel = context.WithTimeout(area, redisTimeout) // a master that hangs has used up the other timeout
	defer cancel()
	return append(checks, examineCluster(ctx, cluster))
}

// examineServer checks a server, and puts a prefix before the names of its checks.
func examineServer(ctx context.Context, where, prefix string, client redis.Cmdable) []watch.Check {
	if err := client.Ping(ctx).Err(); err != nil {
		c := unreachable(err)
		c.Name = prefix + c.Name
		return []watch.Check{c}
	}
	checks := []watch.Check{watch.Pass("reachable", where)}
	text, err := client.Info(ctx).Result()
	info := readInfo(text)
	switch {
	case err != nil:
		checks = append(checks, unanswered("info", err, ": version, writes, eviction and memory are not checked",
			"Grant the user +info: dataplane/redisorigin/README.md has all its rights."))
	default:
		checks = append(checks, infoChecks(info)...)
	}
	if one, ok := client.(*redis.Client); ok && prefix == "" && info["cluster_enabled"] == "1" {
		checks = append(checks, examineCluster(ctx, one))
	}
	for i := range checks {
		checks[i].Name = prefix + checks[i].Name
	}
	return checks
}

func examineCluster(ctx context.Context, client redis.Cmdable) watch.Check {
	state, err := client.ClusterInfo(ctx).Result()
	if err != nil {
		return unanswered("cluster", err, "", "Grant the Redis user +cluster|info.")
	}
	return clusterCheck(readInfo(state))
}

// unanswered reports that a command after PING has failed. Only a missing right is mended by a grant.
func unanswered(name string, err error, missing, grant string) watch.Check {
	var refusal redis.Error
	switch {
	case redis.HasErrorPrefix(err, "NOPERM"):
		return watch.Warn(name, err.Error()+missing, grant)
	case errors.As(err, &refusal):
		return watch.Warn(name, err.Error()+missing, "See why that Redis refuses the command.")
	}
	return watch.Fail(name, err.Error()+missing, "See the load and the log of that Redis, and the network to it.")
}

func unreachable(err error) watch.Check {
	return watch.Fail("reachable", err.Error(),
		"Start that Redis, let this machine reach it, or correct redis-url and redis-password-file.")
}

// quiet keeps the client's own messages out of the log, because the checks have them.
var quiet = sync.OnceFunc(func() { redis.SetLogger(silence{}) })

type silence struct{}

// Printf implements the client's logger.
func (silence) Printf(context.Context, string, ...any) {}

// readInfo reads the answer of INFO or CLUSTER INFO: a line each, name:value.
func readInfo(text string) map[string]string {
	info := map[string]string{}
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimRight(line, "\r\n"), ":"); ok && !strings.HasPrefix(name, "#") {
			info[name] = value
		}
	}
	return info
}

// infoChecks judges version, writes, eviction and memory. A server may leave out a line: then there is no check of it.
func infoChecks(info map[string]string) []watch.Check {
	version := watch.Pass("version", info["redis_version"])
	if valkey := info["valkey_version"]; valkey != "" { // its redis_version is that of the Redis from which it was made
		version.What = fmt.Sprintf("Valkey %.40s", valkey)
	}
	if major, err := strconv.Atoi(strings.SplitN(info["redis_version"], ".", 2)[0]); err != nil || major < 6 {
		version = watch.Warn("version", fmt.Sprintf("%.40q", info["redis_version"]),
			"Weir is tested with Redis 7 and 8, and with Valkey 9; upgrade from anything before Redis 6.")
	}
	checks := []watch.Check{version, writesCheck(info)}
	for _, name := range []string{"maxmemory", "maxmemory_policy", "used_memory"} {
		if info[name] == "" {
			return append(checks, watch.Warn("memory", "INFO has no "+name+": eviction and memory are not checked",
				"Look at the limit of memory and at the eviction policy, which has to be noeviction, where that Redis is managed."))
		}
	}
	policy, bounded := info["maxmemory_policy"], info["maxmemory"] != "0"
	eviction := watch.Pass("eviction", policy)
	if policy != "noeviction" {
		const do = "CONFIG SET maxmemory-policy noeviction, and in its configuration file: an evicted count starts again " +
			"at 0."
		eviction = watch.Warn("eviction", fmt.Sprintf("%.40q, without maxmemory to make it act", policy), do)
		if bounded {
			eviction = watch.Fail("eviction", fmt.Sprintf("%.40q with maxmemory %.40s", policy, info["maxmemory"]), do)
		}
	}
	memory := watch.Pass("memory", fmt.Sprintf("%s used of %s", info["used_memory_human"], info["maxmemory_human"]))
	used, _ := strconv.ParseFloat(info["used_memory"], 64)
	most, _ := strconv.ParseFloat(info["maxmemory"], 64)
	switch {
	case !bounded:
		memory = watch.Warn("memory", info["used_memory_human"]+" used, without a limit",
			"Set maxmemory below the machine's memory: otherwise the kernel kills Redis when memory runs out.")
	case most > 0 && used > 0.9*most:
		memory = watch.Fail("memory", fmt.Sprintf("%s used of %s", info["used_memory_human"], info["maxmemory_human"]),
			"Raise maxmemory: with noeviction Redis refuses writes when it is full, and nodes decide by their own counts.")
	}
	return append(checks, eviction, memory)
}

// writesCheck judges whether a server takes writes. A replica, and a server that refuses writes, answer reads.
func writesCheck(info map[string]string) watch.Check {
	least, err := strconv.Atoi(info["min_slaves_good_slaves"]) // absent unless min-replicas-to-write is set
	switch role := info["role"]; {
	case role == "":
		return watch.Warn("writes", "INFO has no role, so it is unknown whether the server accepts writes",
			"See that redis-url names the primary.")
	case role != "master":
		return watch.Fail("writes", fmt.Sprintf("its role is %.40q: it is a replica, which takes no writes of nodes", role),
			"Let redis-url name the primary, or the Sentinels.")
	case info["loading"] == "1":
		return watch.Fail("writes", "it is loading its data", "Wait until it has loaded: nodes decide by their own counts.")
	case info["aof_last_write_status"] == "err":
		return watch.Fail("writes", "it cannot write its append-only file, and refuses writes until it can",
			"See the log and the disk of that Redis.")
	case info["rdb_last_bgsave_status"] == "err":
		return watch.Warn("writes", "its last save failed: it refuses writes, unless stop-writes-on-bgsave-error is no",
			"See the log and the disk of that Redis.")
	case err == nil && least == 0:
		return watch.Warn("writes", "min-replicas-to-write is set, and no replica is in step: it refuses writes",
			"Look at its replicas, or set min-replicas-to-write to 0.")
	}
	return watch.Pass("writes", "it is a primary")
}

// clusterSlots is how many slots the keys of a Cluster are divided into.
const clusterSlots = "16384"

func clusterCheck(info map[string]string) watch.Check {
	if state := info["cluster_state"]; state != "ok" {
		return watch.Fail("cluster", fmt.Sprintf("cluster_state is %.40q, %s of %s slots are ok", state,
			info["cluster_slots_ok"], info["cluster_slots_assigned"]),
			"See CLUSTER NODES: keys of the slots that are not served are decided locally.")
	}
	// with cluster-require-full-coverage no, the state is ok although slots are without a server
	if ok := info["cluster_slots_ok"]; ok != clusterSlots {
		return watch.Fail("cluster", fmt.Sprintf("%.40q of %s slots are served, although cluster_state is ok", ok,
			clusterSlots), "See CLUSTER NODES: keys of the slots that are not served are decided locally.")
	}
	return watch.Pass("cluster", info["cluster_size"]+" masters, all slots are served")
}
