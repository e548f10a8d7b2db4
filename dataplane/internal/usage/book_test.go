package usage

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/dataplane/internal/clock"
	"github.com/weirhq/weir/shared/heartbeat"
)

func read(t rapid.TB, document string) heartbeat.Usage {
	t.Helper()
	u, err := heartbeat.ReadUsage([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func none() {}

// Whatever names callers send, every report keeps its bounds, and all reports together have all cost: each unit once.
func TestReportsHaveAllCostWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Book
		var spent, reported heartbeat.UsageCost
		var last heartbeat.Usage
		length := rapid.SampledFrom([]int{1, 20, 150}).Draw(t, "length of names")
		report := func() {
			u := read(t, b.Report(0, true, none))
			if len(b.rows) > heartbeat.UsageRowsMax || b.bytes > heartbeat.UsageRowsBytesMax {
				t.Fatalf("%d rows, %d bytes", len(b.rows), b.bytes)
			}
			cost, ok := u.Since(&last)
			if !ok {
				t.Fatalf("report %d after %d", u.Number, last.Number)
			}
			for _, n := range cost {
				reported.Accepted, reported.Denied = reported.Accepted+n.Accepted, reported.Denied+n.Denied
			}
			last = u
		}
		name := func(n int) string { return fmt.Sprintf("%0*d", length, n) }
		t.Repeat(map[string]func(*rapid.T){
			"accept": func(t *rapid.T) {
				from, cost := rapid.IntRange(0, 1000).Draw(t, "from"), rapid.Int64Range(0, 1000).Draw(t, "cost")
				for n := range rapid.IntRange(1, 300).Draw(t, "namespaces") {
					b.Accept("w", name(from+n), cost)
					b.TryDeny("w", name(from+n), 2, cost)
					spent.Accepted, spent.Denied = spent.Accepted+cost, spent.Denied+2*cost
				}
			},
			"unnamed": func(*rapid.T) { b.AcceptUnnamed(1); spent.Accepted++ },
			"report":  func(*rapid.T) { report() },
			"lost reports": func(t *rapid.T) {
				for range rapid.SampledFrom([]int{1, periodReports, 3 * periodReports}).Draw(t, "lost") {
					b.Report(0, true, none)
				}
			},
			"period": func(*rapid.T) {
				for range periodReports {
					report()
				}
			},
		})
		report()
		if reported != spent {
			t.Fatalf("reported %+v of %+v", reported, spent)
		}
	})
}

// A namespace with much cost gets a row, although names without much cost have filled the book before. Nothing is lost.
func TestNamespacesWithMoreCostTakeRows(t *testing.T) {
	var b Book
	for n := range 5000 {
		b.Accept("noise", fmt.Sprint(n), 1)
	}
	for range 3 {
		for range periodReports {
			b.Accept("acme", "api", 100)
			b.TryDeny("acme", "login", 10, 10)
			b.Accept("noise", "0", 1)
			b.Report(0, true, none)
		}
	}
	u := read(t, b.Report(0, true, none))
	costs := make(map[string]int64)
	for _, r := range u.Rows {
		costs[string(r.Workspace)+"/"+string(r.Namespace)] = r.Accepted + r.Denied
	}
	// the first period had no room, and the second waited for the closed rows
	if costs["acme/api"] != 100*periodReports || costs["acme/login"] != 100*periodReports {
		t.Errorf("acme/api %d, acme/login %d", costs["acme/api"], costs["acme/login"])
	}
	if costs["noise/0"] == 0 || len(u.Rows) != heartbeat.UsageRowsMax-0 {
		t.Errorf("noise/0 %d, %d rows", costs["noise/0"], len(u.Rows))
	}
}

// Another document is made once per UsageEvery. The last heartbeat of a process has all cost.
func TestReportIsRepeatedUntilItIsDue(t *testing.T) {
	var b Book
	every := clock.Steady(heartbeat.UsageEvery.Milliseconds())
	first := b.Report(1, false, none)
	b.Accept("w", "n", 1)
	if again := b.Report(every, false, none); again != first {
		t.Errorf("%s after %s", again, first)
	}
	if next := b.Report(every+1, false, none); read(t, next).Number != 2 || len(read(t, next).Rows) != 1 {
		t.Errorf("%s is due", next)
	}
	b.Accept("w", "n", 1)
	if last := read(t, b.Report(every+2, true, none)); last.Rows[0].Accepted != 2 {
		t.Errorf("the last has %+v", last)
	}
}

// The book keeps no caller's buffer, and adding to a known namespace allocates nothing.
func TestBookCopiesNamesOnce(t *testing.T) {
	var b Book
	buffer := strings.Repeat("x", 1<<10)
	b.Accept(buffer[:3], buffer[:4], 1)
	for of := range b.rows {
		if of.Workspace != "xxx" || of.Namespace != "xxxx" {
			t.Errorf("%+v", of)
		}
	}
	if n := testing.AllocsPerRun(100, func() {
		b.TryAccept(buffer[:3], buffer[:4], 1)
		b.TryDeny(buffer[:3], buffer[:4], 1, 3)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// A request never waits for the book: its cost then counts among the others.
func TestABusyBookLosesOnlyNames(t *testing.T) {
	var b Book
	b.mu.Lock()
	b.TryAccept("w", "n", 3)
	b.TryDeny("w", "n", 2, 2)
	b.mu.Unlock()
	if u := read(t, b.Report(0, true, none)); len(u.Rows) != 0 || u.OtherAccepted != 3 || u.OtherDenied != 4 {
		t.Errorf("%+v", u)
	}
}

// A store that is down for an hour counts all cost afterwards, although rows changed hands meanwhile.
func TestNoCostIsLostWithRowsThatAreRemovedWhileTheStoreIsDown(t *testing.T) {
	var b Book
	for n := range heartbeat.UsageRowsMax {
		b.Accept("quiet", fmt.Sprint(n), 1)
	}
	counted := read(t, b.Report(0, true, none))
	for n := range heartbeat.UsageRowsMax {
		b.Accept("quiet", fmt.Sprint(n), 10)
	}
	spent := int64(10 * heartbeat.UsageRowsMax)
	for range 12 * periodReports {
		b.Accept("busy", "n", 1000)
		spent += 1000
		b.Report(0, true, none)
	}
	u := read(t, b.Report(0, true, none))
	var sum int64
	cost, _ := u.Since(&counted)
	for _, n := range cost {
		sum += n.Accepted
	}
	if u.GoneAccepted == 0 || sum != spent {
		t.Errorf("%d of %d is counted; removed rows had %d", sum, spent, u.GoneAccepted)
	}
}
