package redisorigin_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/await"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// partitionsForTest starts three servers, called a, b and c.
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
	return openAll(t, urls, redisorigin.Options{})
}

// oneInEach returns a cell of each shard.
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

func TestKeysStayInTheirPartitions(t *testing.T) {
	processes, urls := partitionsForTest(t)
	o := openPartitions(t, reversed(urls))
	var costs []store.Cost
	for i := range 300 {
		costs = append(costs, store.Cost{Cell: cellNow(fmt.Sprint(i), time.Hour), Add: 1})
	}
	add(t, o, costs...)
	for n, p := range processes {
		raw := rawClient(t, p.Addr())
		for _, c := range costs {
			if is, want := raw.Exists(t.Context(), o.Key(c.Cell)).Val() == 1, n == o.ShardOf(&c.Cell.Key); is != want {
				t.Errorf("%s is in partition %s: %t, want %t", o.Key(c.Cell), letters(3)[n], is, want)
			}
		}
	}
}

// "A server that is down concerns its own keys only": they fail,
// the others go on, nothing is answered by another server, and it comes back by itself.
func TestOneOfThreeServersDies(t *testing.T) {
	processes, urls := partitionsForTest(t)
	o := openPartitions(t, urls)
	cells := oneInEach(o)
	const dead = 1
	add(t, o, store.Cost{Cell: cells[0], Add: 5}, store.Cost{Cell: cells[1], Add: 5}, store.Cost{Cell: cells[2], Add: 5})
	if err := processes[dead].Kill(); err != nil {
		t.Fatal(err)
	}
	for round := range int64(30) {
		for i, c := range cells {
			if i != dead {
				if got := add(t, o, store.Cost{Cell: c, Add: 1})[0]; got != 6+round {
					t.Fatalf("partition %d has %d", i, got)
				}
			}
			reply, err := o.Read(t.Context(), cells[i:i+1])
			if i == dead {
				if err == nil || !strings.Contains(err.Error(), "b ("+processes[dead].Addr()+")") {
					t.Fatalf("read of the dead partition: %v, %v", reply, err)
				}
			} else if err != nil || reply.Totals[0].Region != 6+round {
				t.Fatalf("partition %d: %v, %v", i, reply, err)
			}
			claimed := claim(t.Context(), o, store.Cost{Cell: c, Add: 1, AtMost: 3})[0]
			if (claimed.Err != nil) != (i == dead) || claimed.Added {
				t.Fatalf("claim from partition %d: %+v", i, claimed)
			}
		}
	}
	for i, p := range processes {
		if i != dead {
			if n := rawClient(t, p.Addr()).Exists(t.Context(), o.Key(cells[dead])).Val(); n != 0 {
				t.Errorf("partition %d has a key of the dead one", i)
			}
		}
	}

	if err := processes[dead].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await.NoError(t, "the partition is back", func() error {
		_, err := o.Read(t.Context(), cells[dead:dead+1])
		return err
	})
	if got := read(t, o, cells...); got[dead] != 0 || got[0] != 35 || got[2] != 35 {
		t.Errorf("totals after the server came back without its data: %v", got)
	}
	if got := add(t, o, store.Cost{Cell: cells[dead], Add: 2}); got[0] != 2 {
		t.Errorf("the first chunk after it: %d", got[0])
	}
}
