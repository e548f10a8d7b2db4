package redisorigin_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// What a replay tick costs: each call names 500 cells, one command's worth.
func BenchmarkCallOf500(b *testing.B) {
	o := openAt(b, servers.RedisForTest(b).Addr(), redisorigin.Options{})
	const n = 500
	cells, adds, claims := make([]window.Cell, n), make([]store.Add, n), make([]store.Claim, n)
	for i := range cells {
		cells[i] = cellNow(fmt.Sprint("user-", i), time.Hour)
		adds[i] = store.Add{Cell: cells[i], Cost: 1}
		claims[i] = store.Claim{Cell: cells[i], Cost: 1, AtMost: math.MaxInt64}
	}
	b.Run("Read", func(b *testing.B) {
		for b.Loop() {
			read(b, o, cells...)
		}
	})
	b.Run("Add", func(b *testing.B) {
		for b.Loop() {
			add(b, o, adds...)
		}
	})
	b.Run("Claim", func(b *testing.B) {
		for b.Loop() {
			if c := o.Claim(b.Context(), claims)[0]; !c.Added {
				b.Fatal(c)
			}
		}
	})
}

func BenchmarkShardOf(b *testing.B) {
	for _, n := range []int{1, 3, 8} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			o, key := named(b, letters(n)...), userKey(1)
			for b.Loop() {
				o.ShardOf(key)
			}
		})
	}
}
