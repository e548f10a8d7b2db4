package redisorigin

import (
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// carriedScript runs the arithmetic of the script of holds.
const carriedScript = luaCarried + `
local all = {}
for i = 1, #ARGV, 3 do all[#all+1] = string.format('%.0f', carried(tonumber(ARGV[i]), tonumber(ARGV[i+1]), tonumber(ARGV[i+2]))) end
return all
`

// The cost that the previous cell still counts is exact at the origin, as at each node, even if the product has more
// than 53 bits.
func TestCarriedCostIsExact(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servers.RedisForTest(t).Addr()})
	defer func() { _ = client.Close() }()
	ctx := t.Context()
	type product struct{ n, uncovered, duration int64 }
	check := func(t interface {
		Helper()
		Fatalf(string, ...any)
	}, all ...product) {
		t.Helper()
		var args []any
		for _, p := range all {
			args = append(args, p.n, p.uncovered, p.duration)
		}
		got, err := client.Eval(ctx, carriedScript, nil, args...).StringSlice()
		if err != nil || len(got) != len(all) {
			t.Fatalf("%v, %v", got, err)
		}
		for i, p := range all {
			if want := strconv.FormatInt(window.Carried(p.n, p.uncovered, p.duration), 10); got[i] != want {
				t.Fatalf("%d * %d / %d is %s, want %s", p.n, p.uncovered, p.duration, got[i], want)
			}
		}
	}
	longest := window.DurationMax.Milliseconds()
	for _, n := range []int64{0, 1, store.CountMax - 1, store.CountMax} {
		for _, duration := range []int64{1000, 59_999, 60_000, 86_400_000, longest - 1, longest} {
			check(t, product{n, 0, duration}, product{n, 1, duration}, product{n, duration / 3, duration},
				product{n, duration - 1, duration}, product{n, duration, duration})
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		var all []product
		for range 200 {
			duration := rapid.Int64Range(1000, longest).Draw(rt, "duration")
			all = append(all, product{rapid.Int64Range(0, store.CountMax).Draw(rt, "n"), rapid.Int64Range(0, duration).Draw(rt, "uncovered"), duration})
		}
		check(rt, all...)
	})
}
