package mysqlcounts

import (
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/usage"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/servers"
)

// usageProcess is a process with a book of its own, and all reports that it has made.
type usageProcess struct {
	node    string
	started int64
	book    usage.Book
	sent    []heartbeat.Heartbeat
}

func (p *usageProcess) report(region string) {
	n := int64(len(p.sent) + 1)
	p.sent = append(p.sent, heartbeat.Heartbeat{NodeID: p.node, Region: region, StartedAtMs: p.started,
		SentAtMs: p.started + n, Usage: p.book.Report(0, true, func() {})})
}

func usageSums(t testing.TB, db *sql.DB, region string) map[heartbeat.UsageOf]heartbeat.UsageCost {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT workspace_id, namespace, CAST(SUM(accepted) AS SIGNED),
		CAST(SUM(denied) AS SIGNED) FROM ratelimit_usage WHERE region = ? GROUP BY workspace_id, namespace`, []byte(region))
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	sums := make(map[heartbeat.UsageOf]heartbeat.UsageCost)
	for rows.Next() {
		var of heartbeat.UsageOf
		var n heartbeat.UsageCost
		if err := rows.Scan(&of.Workspace, &of.Namespace, &n.Accepted, &n.Denied); err != nil {
			t.Fatal(err)
		}
		if n != (heartbeat.UsageCost{}) {
			sums[of] = n
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return sums
}

func wantUsage(t rapid.TB, got, want map[heartbeat.UsageOf]heartbeat.UsageCost) {
	t.Helper()
	if !maps.Equal(got, want) {
		t.Fatalf("stored %v, want %v", got, want)
	}
}

// Whatever reports of whichever processes are lost, repeated, late or out of order: the sum of all hours is the sum
// of the newest stored reports of all processes. Once each process has delivered its last report, it is all of their
// cost.
func TestUsageCountsEachReportOnce(t *testing.T) { servers.EachSQL(t, testUsageCountsEachReportOnce) }

func testUsageCountsEachReportOnce(t *testing.T) {
	c, db := openCounts(t)
	checks := 0
	rapid.Check(t, func(rt *rapid.T) {
		checks++
		region := fmt.Sprintf("region-%d", checks)
		var all []*usageProcess
		for i := range rapid.IntRange(1, 4).Draw(rt, "processes") {
			// Two processes of one node are a restart, or two nodes with the same ID.
			all = append(all, &usageProcess{node: fmt.Sprintf("%s-%d", region, i/2), started: int64(1000 + i)})
		}
		spent, newest := make(map[heartbeat.UsageOf]heartbeat.UsageCost), make(map[*usageProcess]int)
		one := rapid.SampledFrom(all)
		send := func(beats ...heartbeat.Heartbeat) {
			if err := c.Heartbeat(t.Context(), beats...); err != nil {
				rt.Fatal(err)
			}
		}
		want := func() map[heartbeat.UsageOf]heartbeat.UsageCost {
			sums := make(map[heartbeat.UsageOf]heartbeat.UsageCost)
			for p, n := range newest {
				if n == 0 {
					continue
				}
				u, err := heartbeat.ReadUsage([]byte(p.sent[n-1].Usage))
				if err != nil {
					rt.Fatal(err)
				}
				for _, r := range u.Rows {
					of := heartbeat.UsageOf{Workspace: string(r.Workspace), Namespace: string(r.Namespace)}
					sums[of] = heartbeat.UsageCost{Accepted: sums[of].Accepted + r.Accepted, Denied: sums[of].Denied + r.Denied}
				}
			}
			return sums
		}
		rt.Repeat(map[string]func(*rapid.T){
			"spend": func(rt *rapid.T) {
				p, of := one.Draw(rt, "process"), heartbeat.UsageOf{Workspace: "w", Namespace: rapid.SampledFrom([]string{"a",
					"b\xff", "B"}).Draw(rt, "namespace")}
				n := heartbeat.UsageCost{Accepted: rapid.Int64Range(0, 1<<40).Draw(rt, "accepted"),
					Denied: rapid.Int64Range(0, 9).Draw(rt, "denied")}
				p.book.Accept(of.Workspace, of.Namespace, n.Accepted)
				p.book.TryDeny(of.Workspace, of.Namespace, n.Denied, 1)
				spent[of] = heartbeat.UsageCost{Accepted: spent[of].Accepted + n.Accepted, Denied: spent[of].Denied + n.Denied}
			},
			"report": func(rt *rapid.T) { one.Draw(rt, "process").report(region) },
			"deliver": func(rt *rapid.T) {
				var beats []heartbeat.Heartbeat
				for _, p := range rapid.SliceOfNDistinct(one, 1, len(all), rapid.ID).Draw(rt, "processes") {
					if len(p.sent) > 0 {
						n := rapid.IntRange(1, len(p.sent)).Draw(rt, "report")
						beats, newest[p] = append(beats, p.sent[n-1]), max(newest[p], n)
					}
				}
				send(beats...)
			},
		})
		wantUsage(rt, usageSums(t, db, region), want())
		for _, p := range all {
			p.report(region)
			newest[p] = len(p.sent)
			send(p.sent...)
		}
		got := usageSums(t, db, region)
		wantUsage(rt, got, want())
		maps.DeleteFunc(spent, func(_ heartbeat.UsageOf, n heartbeat.UsageCost) bool { return n == heartbeat.UsageCost{} })
		wantUsage(rt, got, spent)
	})
}

// Relays that store the same reports at the same time count each report once.
func TestUsageOfConcurrentRelays(t *testing.T) { servers.EachSQL(t, testUsageOfConcurrentRelays) }

func testUsageOfConcurrentRelays(t *testing.T) {
	c, db := openCounts(t)
	nodes := make([]usageProcess, 8)
	var running sync.WaitGroup
	for round := range 5 {
		var beats []heartbeat.Heartbeat
		for i := range nodes {
			nodes[i].node, nodes[i].started = fmt.Sprint("node-", i), 1
			nodes[i].book.Accept("w", fmt.Sprint("n", (i+round)%3), 1)
			nodes[i].report("eu")
			beats = append(beats, nodes[i].sent[round])
		}
		for relay := range 4 {
			running.Go(func() {
				of := slices.Clone(beats)
				if relay%2 == 1 {
					slices.Reverse(of)
				}
				if err := c.Heartbeat(t.Context(), of...); err != nil {
					t.Error(err)
				}
			})
		}
		running.Wait()
	}
	var sum int64
	for _, n := range usageSums(t, db, "eu") {
		sum += n.Accepted
	}
	if want := int64(5 * len(nodes)); sum != want {
		t.Errorf("cost of %d is stored, want %d", sum, want)
	}
}

// The hour is that in which the heartbeat was sent, by the database's clock. The row without names shows that the
// region has reported, even if nothing was used.
func TestUsageHour(t *testing.T) { servers.EachSQL(t, testUsageHour) }

func testUsageHour(t *testing.T) {
	c, db := openCounts(t)
	p := usageProcess{node: "node", started: 1}
	p.report("eu")
	p.sent[0].Age = 5 * time.Hour
	if err := c.Heartbeat(t.Context(), p.sent...); err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, db, `SELECT COUNT(*) FROM ratelimit_usage WHERE workspace_id = '' AND namespace = '' AND region = 'eu'
		AND hour_at % 3600000 = 0 AND UNIX_TIMESTAMP() * 1000 - CAST(hour_at AS SIGNED) BETWEEN 5 * 3600000 AND 6 * 3600000 + 9`); n != 1 {
		t.Errorf("%d rows of the hour five hours ago", n)
	}
}

// "If a process that ran for longer than UsageNewFor reports and its totals are missing, the report is stored as the
// base".
func TestUsageOfAnOldProcessIsNotCountedTwice(t *testing.T) {
	servers.EachSQL(t, testUsageOfAnOldProcessIsNotCountedTwice)
}

func testUsageOfAnOldProcessIsNotCountedTwice(t *testing.T) {
	c, db := openCounts(t)
	p := usageProcess{node: "node", started: 1}
	p.book.Accept("w", "n", 100)
	p.report("eu")
	p.book.Accept("w", "n", 7)
	p.report("eu")
	for i := range p.sent {
		p.sent[i].SentAtMs += 2 * heartbeat.UsageNewFor.Milliseconds()
	}
	for _, b := range p.sent {
		if err := c.Heartbeat(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	wantUsage(t, usageSums(t, db, "eu"), map[heartbeat.UsageOf]heartbeat.UsageCost{{Workspace: "w", Namespace: "n"}: {Accepted: 7}})
}

// Heartbeats are stored whether their usage can be stored or not, for example before the tables exist. Nothing is lost.
func TestUsageNeverHoldsUpHeartbeats(t *testing.T) {
	servers.EachSQL(t, testUsageNeverHoldsUpHeartbeats)
}

func testUsageNeverHoldsUpHeartbeats(t *testing.T) {
	c, db := openCounts(t)
	p := usageProcess{node: "node", started: 1}
	p.book.Accept("w", "n", 5)
	p.report("eu")
	exec(t, db, "RENAME TABLE ratelimit_usage TO elsewhere")
	bad := heartbeat.Heartbeat{NodeID: "bad", Region: "eu", Usage: `{"number":0}`}
	if err := c.Heartbeat(t.Context(), p.sent[0], bad); err != nil {
		t.Fatal(err)
	}
	if n := one[int](t, db, "SELECT COUNT(*) FROM ratelimit_nodes"); n != 2 {
		t.Errorf("%d heartbeats are stored", n)
	}
	exec(t, db, "RENAME TABLE elsewhere TO ratelimit_usage")
	p.report("eu")
	if err := c.Heartbeat(t.Context(), p.sent[1]); err != nil {
		t.Fatal(err)
	}
	wantUsage(t, usageSums(t, db, "eu"), map[heartbeat.UsageOf]heartbeat.UsageCost{{Workspace: "w", Namespace: "n"}: {Accepted: 5}})
}

// A hundred nodes with documents of the largest size fit into the statements, and sums stop below 2^62.
func TestUsageOfTheLargestReports(t *testing.T) { servers.EachSQL(t, testUsageOfTheLargestReports) }

func testUsageOfTheLargestReports(t *testing.T) {
	c, db := openCounts(t)
	var beats []heartbeat.Heartbeat
	for i := range 100 {
		p := usageProcess{node: fmt.Sprintf("%064d", i), started: 1}
		for ns := range heartbeat.UsageRowsMax {
			p.book.Accept("workspace", fmt.Sprintf("%050d", ns), 1<<62-1)
		}
		p.report("eu")
		beats = append(beats, p.sent[0])
	}
	if err := c.Heartbeat(t.Context(), beats...); err != nil {
		t.Fatal(err)
	}
	sums := usageSums(t, db, "eu")
	if len(sums) < heartbeat.UsageRowsMax/2 { // and the others
		t.Errorf("%d namespaces", len(sums))
	}
	for of, n := range sums {
		if n.Accepted != 1<<62-1 {
			t.Fatalf("%v: %d", of, n.Accepted)
		}
	}
}
