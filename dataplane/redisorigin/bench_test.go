package redisorigin_test

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/redisorigin"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/servers"
	"github.com/weirhq/weir/shared/window"
)

// serverCPU returns the seconds of CPU time of a server's main thread. Unlike the time of a call, it does not depend on
// the machine's other load.
func serverCPU(b *testing.B, raw *redis.Client) float64 {
	seconds := 0.0
	for line := range strings.Lines(raw.Info(b.Context(), "cpu").Val()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user_main_thread" || name == "used_cpu_sys_main_thread" {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			seconds += n
		}
	}
	return seconds
}

// The cost of a replay tick, a call of 500 cells, and the server's memory for a cell.
func BenchmarkCallOf500(b *testing.B) {
	server := servers.RedisForTest(b)
	h := openOrigin(b, "redis://"+server.Addr(), redisorigin.Options{})
	const n = 500
	cells, costs, claims := make([]window.Cell, n), make([]store.Cost, n), make([]store.Cost, n)
	for i := range cells {
		cells[i] = cellNow(fmt.Sprint("user-", i), time.Hour)
		costs[i] = store.Cost{Cell: cells[i], Epoch: epochOf(b, h, cells[0]), Add: 1, Limit: 1 << 40}
		claims[i] = store.Cost{Cell: cells[i], Add: 1, AtMost: math.MaxInt64, Limit: 1 << 40}
	}
	raw := rawClient(b, server.Addr())
	s := &sender{h: h}
	b.Run("Send", func(b *testing.B) {
		before := serverCPU(b, raw)
		for b.Loop() {
			s.send(b, costs...)
		}
		b.ReportMetric((serverCPU(b, raw)-before)*1e6/float64(b.N*n), "server-µs/cell")
		b.ReportMetric(float64(raw.MemoryUsage(b.Context(), h.Key(cells[0])).Val()), "B/cell")
	})
	b.Run("Get", func(b *testing.B) {
		for b.Loop() {
			if _, err := h.Read(b.Context(), cells); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Send up to AtMost", func(b *testing.B) {
		for b.Loop() {
			if total := claim(b.Context(), h, claims...)[0]; !total.Added {
				b.Fatal(total)
			}
		}
	})
	b.Run("Changes and Ack", func(b *testing.B) {
		for b.Loop() {
			changes, err := h.Changes(b.Context(), 0, n)
			if err == nil {
				err = h.Ack(b.Context(), 0, changes.Cells)
			}
			if s.send(b, costs...); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A cell's memory in Redis by each kind of window. The precise cell has all marks that its limit can set.
func BenchmarkCellMemory(b *testing.B) {
	server := servers.RedisForTest(b)
	h := openOrigin(b, "redis://"+server.Addr(), redisorigin.Options{})
	raw, s := rawClient(b, server.Addr()), &sender{h: h}
	const limit = 1000
	for _, c := range []struct {
		name    string
		history window.History
	}{{"cells", 0}, {"precise", window.BeginHistory(limit)}} {
		b.Run(c.name, func(b *testing.B) {
			cell := cellNow(c.name, time.Hour)
			cost := store.Cost{Cell: cell, Epoch: epochOf(b, h, cell), Add: limit, Limit: limit, History: c.history}
			marks := len(s.send(b, cost)[0].History.AppendSteps(nil))
			for b.Loop() {
				b.ReportMetric(float64(raw.MemoryUsage(b.Context(), h.Key(cell)).Val()), "B/cell")
			}
			b.ReportMetric(float64(marks), "marks")
		})
	}
}

// The server's cost of a relay's call of 1,000 cells: of new cells, of cells with a smaller total, and of cells that it
// has with this total; and with listening nodes. full-core-cells/s is the number of cells per second that use a whole
// core.
func BenchmarkApply1000(b *testing.B) {
	const n = 1_000
	grown := int64(0)
	for _, c := range []struct {
		name           string
		isNew, isRaise bool
		nodes          int
	}{{"new", true, true, 0}, {"raised", false, true, 0}, {"raised, 10 nodes listen", false, true, 10}, {"repeated", false, false, 0}} {
		b.Run(c.name, func(b *testing.B) {
			server := servers.RedisForTest(b)
			h, raw := openOrigin(b, "redis://"+server.Addr(), redisorigin.Options{}), rawClient(b, server.Addr())
			for range c.nodes {
				drain(b, raw)
			}
			apply := func(from int) {
				totals := make([]store.Foreign, n)
				for i := range totals {
					totals[i] = store.Foreign{Cell: cellNow(fmt.Sprint("user-", from+i), time.Hour), Count: 1 + grown}
				}
				if _, err := h.Apply(b.Context(), 0, totals); err != nil {
					b.Fatal(err)
				}
			}
			apply(0)
			before, calls := serverCPU(b, raw), 0
			for b.Loop() {
				calls++
				from := 0
				if c.isNew {
					from = calls * n
				}
				if c.isRaise {
					grown++
				}
				apply(from)
			}
			perCell := (serverCPU(b, raw) - before) / float64(calls*n)
			b.ReportMetric(perCell*1e6, "server-µs/cell")
			b.ReportMetric(1/perCell, "full-core-cells/s")
		})
	}
}

// drain subscribes a client to all messages.
func drain(b *testing.B, raw *redis.Client) {
	listening := raw.PSubscribe(b.Context(), "*")
	if _, err := listening.Receive(b.Context()); err != nil {
		b.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range listening.Channel() {
		}
	}()
	b.Cleanup(func() {
		if err := listening.Close(); err != nil {
			b.Error(err)
		}
		<-done
	})
}

// BenchmarkReservation makes a reservation of one cell, settles its record and ends its hold: three round trips.
func BenchmarkReservation(b *testing.B) {
	server := servers.RedisForTest(b)
	h, raw := openOrigin(b, "redis://"+server.Addr(), redisorigin.Options{}), rawClient(b, server.Addr())
	c, text, n := inTheFuture("k"), strings.Repeat("x", 200), 0
	before := serverCPU(b, raw)
	for b.Loop() {
		id := fmt.Sprint(n)
		n++
		reserve := holdCall(newHold(id, c, 1, 1<<40))
		reserve.Record = &store.Record{ID: id, Text: text + id, TTL: time.Hour}
		settle := store.HoldCall{Group: c.Key, Stream: 1, Record: &store.Record{ID: id, Settled: true, Attempt: 1}}
		for _, call := range []store.HoldCall{reserve, settle, holdCall(ended(id, c, 1))} {
			if reply, err := h.Hold(b.Context(), call); err != nil || reply.Refused {
				b.Fatalf("%+v, %v", reply, err)
			}
		}
	}
	b.ReportMetric((serverCPU(b, raw)-before)*1e6/float64(b.N), "server-µs/op")
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

// BenchmarkRecovery measures the first call after a failover that has lost 1,000 answered chunks of 20 costs. Either
// all chunks have the same keys, or each has different keys.
func BenchmarkRecovery(b *testing.B) {
	const chunks, costs = 1000, 20
	for name, keys := range map[string]int{"the same keys": costs, "other keys": chunks * costs} {
		b.Run(name, func(b *testing.B) {
			server := servers.RedisForTest(b)
			raw := rawClient(b, server.Addr())
			for b.Loop() {
				b.StopTimer()
				command(b, raw, "FLUSHALL")
				s := &sender{h: keep(openAt(b, server.Addr(), redisorigin.Options{}))}
				cell := func(i int) store.Cost {
					return store.Cost{Cell: cellNow(fmt.Sprint("k", i%keys), time.Hour), Add: 1, Limit: 1 << 40}
				}
				s.send(b, cell(0))
				failOver := dumped(b, []*redis.Client{raw})
				for i := range chunks {
					var all []store.Cost
					for j := range costs {
						all = append(all, cell(i*costs+j))
					}
					s.send(b, all...)
				}
				failOver(b)
				b.StartTimer()
				s.send(b, cell(0))
			}
		})
	}
}
