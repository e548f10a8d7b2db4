package redisorigin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// partitionsForTest are three servers, called a, b and c.
func partitionsForTest(t testing.TB) (processes []*servers.Redis, urls []string) {
	t.Helper()
	for _, name := range letters(3) {
		server := servers.RedisForTest(t)
		processes = append(processes, server)
		urls = append(urls, name+"=redis://"+server.Addr())
	}
	return processes, urls
}

func openPartitions(t testing.TB, urls []string) *redisorigin.Origin {
	t.Helper()
	var all []string
	for _, url := range urls {
		all = append(all, patient(url))
	}
	o, err := redisorigin.OpenPartitions(all, redisorigin.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.Close(); err != nil {
			t.Error(err)
		}
	})
	return o
}

// oneInEach is a cell of each shard.
func oneInEach(o *redisorigin.Origin) []window.Cell {
	cells := make([]window.Cell, o.Shards())
	for found, i := 0, 0; found < len(cells); i++ {
		c := cellNow(fmt.Sprint(i), time.Hour)
		if n := o.ShardOf(&c.Key); cells[n] == (window.Cell{}) {
			cells[n], found = c, found+1
		}
	}
	return cells
}

func TestPartitionsKeepTheContract(t *testing.T) {
	processes, urls := partitionsForTest(t)
	var raw []*redis.Client
	for _, p := range processes {
		raw = append(raw, rawClient(t, p.Addr()))
	}
	storetest.TestOrigin(t, func(t testing.TB) store.Origin {
		for _, r := range raw {
			command(t, r, "FLUSHALL")
		}
		return openPartitions(t, urls)
	})

	t.Run("each key is in its own partition and in no other", func(t *testing.T) {
		for _, r := range raw {
			command(t, r, "FLUSHALL")
		}
		o := openPartitions(t, reversed(urls))
		var adds []store.Add
		for i := range 300 {
			adds = append(adds, store.Add{Cell: cellNow(fmt.Sprint(i), time.Hour), Cost: 1})
		}
		add(t, o, adds...)
		for _, a := range adds {
			for n, r := range raw {
				is, want := r.Exists(t.Context(), o.Key(a.Cell)).Val() == 1, n == o.ShardOf(&a.Cell.Key)
				if is != want {
					t.Errorf("%s is in partition %s: %t, want %t", o.Key(a.Cell), letters(3)[n], is, want)
				}
			}
		}
	})
}

// "A server that is down concerns its own keys only": they fail,
// the others go on, nothing is answered by another server, and it comes back by itself.
func TestOneOfThreeServersDies(t *testing.T) {
	processes, urls := partitionsForTest(t)
	o := openPartitions(t, urls)
	cells := oneInEach(o)
	const dead = 1
	each := func(cost int64) []store.Added {
		var adds []store.Add
		for _, c := range cells {
			adds = append(adds, store.Add{Cell: c, Cost: cost})
		}
		return o.Add(t.Context(), adds) // all in one call: the dead one must not spoil it
	}
	for i, a := range each(5) {
		if a != (store.Added{Total: 5}) {
			t.Fatalf("partition %d: %+v", i, a)
		}
	}
	if err := processes[dead].Kill(); err != nil {
		t.Fatal(err)
	}
	for round := range int64(30) {
		for i, a := range each(1) {
			if i != dead && a != (store.Added{Total: 6 + round}) || i == dead && a.Err == nil {
				t.Fatalf("partition %d: %+v", i, a)
			}
		}
		for i := range cells {
			totals, err := o.Read(t.Context(), cells[i:i+1])
			if i == dead {
				if err == nil || !strings.Contains(err.Error(), "b ("+processes[dead].Addr()+")") {
					t.Fatalf("read of the dead partition: %v, %v", totals, err)
				}
			} else if err != nil || totals[0] != 6+round {
				t.Fatalf("partition %d: %v, %v", i, totals, err)
			}
			claimed := o.Claim(t.Context(), []store.Claim{{Cell: cells[i], Cost: 1, AtMost: 3}})[0]
			if (claimed.Err != nil) != (i == dead) || claimed.Added {
				t.Fatalf("claim from partition %d: %+v", i, claimed)
			}
		}
		if totals, err := o.Read(t.Context(), cells); err == nil {
			t.Fatalf("a read of all partitions: %v", totals)
		}
	}
	for i, p := range processes {
		if i != dead {
			if n := rawClient(t, p.Addr()).DBSize(t.Context()).Val(); n != 1 {
				t.Errorf("partition %d has %d keys, want its own and no other's", i, n)
			}
		}
	}

	if err := processes[dead].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the partition is back", func() bool {
		_, err := o.Read(t.Context(), cells)
		return err == nil
	})
	if got := read(t, o, cells...); got[dead] != 0 || got[0] != 35 || got[2] != 35 {
		t.Errorf("totals after the server came back without its data: %v", got)
	}
	if got := add(t, o, store.Add{Cell: cells[dead], Cost: 2}); got[0] != 2 {
		t.Errorf("the first increment after it: %d", got[0])
	}
}

// A server that takes everything and answers nothing costs the others nothing: calls
// go to all at the same time.
func TestASilentPartitionHoldsUpNoOther(t *testing.T) {
	silent, other := servers.ProxyForTest(t, servers.RedisForTest(t).Addr()), servers.RedisForTest(t)
	o := openPartitions(t, []string{"a=redis://" + silent.Addr(), "b=redis://" + other.Addr()})
	direct := openAt(t, other.Addr(), redisorigin.Options{})
	cells := oneInEach(o)
	add(t, o, store.Add{Cell: cells[0], Cost: 1}, store.Add{Cell: cells[1], Cost: 1})
	silent.BlackHole(true)
	answered := make(chan []store.Added, 1)
	go func() {
		answered <- o.Add(t.Context(), []store.Add{{Cell: cells[0], Cost: 1}, {Cell: cells[1], Cost: 1}})
	}()
	await.True(t, "the other has counted", func() bool { return read(t, direct, cells[1])[0] == 2 })
	silent.Cut()
	if added := <-answered; added[0].Err == nil || added[1] != (store.Added{Total: 2}) {
		t.Errorf("added %+v", added)
	}
}
