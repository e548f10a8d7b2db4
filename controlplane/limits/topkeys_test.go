package limits

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/workspaces"
)

// topReports is a TopStore in memory.
type topReports []TopReport

func (r topReports) TopReports(_ context.Context, _ time.Duration, rows int) (time.Time, []TopReport, error) {
	return time.UnixMilli(100_000), r[:min(rows, len(r))], nil
}

func reportOf(t *testing.T, region string, atMs int64, top heartbeat.Top) TopReport {
	t.Helper()
	document, err := top.Document()
	if err != nil {
		t.Fatal(err)
	}
	return TopReport{Region: region, SeenAt: time.UnixMilli(atMs), Document: []byte(document)}
}

func hot(identifier string, count, regional, limit int64) heartbeat.TopKey {
	return heartbeat.TopKey{Workspace: []byte("w"), Namespace: []byte("n"), Identifier: []byte(identifier), DurationMs: 1000, Limit: limit, Count: count, Regional: regional}
}

func ranked(keys []TopKey) (got []string) {
	for _, k := range keys {
		got = append(got, fmt.Sprint(k.Identifier, " ", k.Count, " of ", k.Limit, " ", k.Regions))
	}
	return got
}

// "The largest count stands for its region. Regions add up, and the sum is at least the largest total that any node
// reports"; denials add up.
func TestTopKeysAreMergedOverNodes(t *testing.T) {
	store := topReports{
		reportOf(t, "eu", 99_000, heartbeat.Top{
			Hot:    []heartbeat.TopKey{hot("a", 12, 9, 20), hot("b", 7, 7, -1)},
			Denied: []heartbeat.TopKey{hot("x", 5, 0, 10)}}),
		reportOf(t, "eu", 98_000, heartbeat.Top{
			Hot:    []heartbeat.TopKey{hot("a", 10, 8, 25)},
			Denied: []heartbeat.TopKey{hot("x", 6, 0, 10), hot("y", 1, 0, 0)}}),
		reportOf(t, "us", 97_000, heartbeat.Top{
			Hot:    []heartbeat.TopKey{hot("a", 5, 5, 20), hot("c", 30, 2, 100)},
			Denied: []heartbeat.TopKey{hot("x", 2, 0, 10)}}),
		{Region: "us", Document: []byte("{")},
	}
	for denied, want := range map[bool][]string{
		false: {"c 30 of 100 [{us 2}]", "a 14 of 20 [{eu 9} {us 5}]", "b 7 of -1 [{eu 7}]"},
		true:  {"x 13 of 10 [{eu 11} {us 2}]", "y 1 of 0 [{eu 1}]"},
	} {
		got, err := ListTopKeys(t.Context(), store, TopQuery{Denied: denied, Limit: 10}, time.Minute)
		if err != nil || !reflect.DeepEqual(ranked(got.Keys), want) {
			t.Errorf("denied %v: %q, %v; want %q", denied, ranked(got.Keys), err, want)
		}
		if got.Nodes != 3 || got.Unreadable != 1 || got.Oldest != 3*time.Second || got.Truncated {
			t.Errorf("%+v", got)
		}
	}
	got, _ := ListTopKeys(t.Context(), store, TopQuery{Limit: 1}, time.Minute)
	if len(got.Keys) != 1 || got.Total != 51 {
		t.Errorf("one key of all: %+v", got)
	}
	if got, _ = ListTopKeys(t.Context(), store, TopQuery{Namespace: "other", Limit: 1}, time.Minute); len(got.Keys) != 0 || got.Total != 0 {
		t.Errorf("another namespace: %+v", got)
	}
}

// An unreadable key affects only itself: the other keys of its report are merged, and the answer is marked as partial.
func TestAReportWithABadKeyIsReadInPart(t *testing.T) {
	store := topReports{{Region: "eu", SeenAt: time.UnixMilli(99_000), Document: []byte(`{"hot":[{},{"w":"dw==","n":"bg==","i":"YQ==","d":1000,
		"c":4,"r":3}],"held":[{"k":"lease","w":"dw==","n":"bg==","i":"YQ==","a":2},{}]}`)}}
	if got, err := ListTopKeys(t.Context(), store, TopQuery{Limit: 9}, time.Minute); err != nil || len(got.Keys) != 1 || got.Nodes != 1 ||
		got.Unreadable != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := ListHeld(t.Context(), store, TopQuery{Limit: 9}, time.Minute); err != nil || len(got.Held) != 1 || got.Nodes != 1 ||
		got.Unreadable != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A heartbeat brings a report every 15 seconds, and keeps the earlier report until then. The age of a report is its
// own, and not the heartbeat's.
func TestAReportIsAsOldAsItIs(t *testing.T) {
	report := func(madeMs, sentMs, seenMs int64) TopReport {
		r := reportOf(t, "eu", seenMs, heartbeat.Top{AtMs: madeMs, Hot: []heartbeat.TopKey{hot("a", 12, 9, 20)}})
		r.SentAtMs = sentMs
		return r
	}
	for name, tc := range map[string]struct {
		reports topReports
		want    time.Duration
	}{
		"with its heartbeat":                {topReports{report(5_000, 5_000, 98_000)}, 2 * time.Second},
		"kept by later heartbeats":          {topReports{report(5_000, 17_000, 98_000)}, 14 * time.Second},
		"of two nodes":                      {topReports{report(5_000, 6_000, 99_000), report(5_000, 17_000, 98_000)}, 14 * time.Second},
		"of a clock that went back":         {topReports{report(50_000, 17_000, 98_000)}, 2 * time.Second},
		"from before the database's clock":  {topReports{report(1, 1<<62, 98_000)}, 100 * time.Second},
		"of a build that gave it no moment": {topReports{report(0, 17_000, 98_000)}, 2 * time.Second},
	} {
		got, err := ListTopKeys(t.Context(), tc.reports, TopQuery{Limit: 1}, time.Minute)
		if err != nil || got.Oldest != tc.want || got.Now.Sub(got.Keys[0].ReportedAt) != tc.want {
			t.Errorf("%s: %v old, the key's %v, want %v (%v)", name, got.Oldest, got.Now.Sub(got.Keys[0].ReportedAt), tc.want, err)
		}
		held, err := ListHeld(t.Context(), tc.reports, TopQuery{Limit: 1}, time.Minute)
		if err != nil || held.Oldest != tc.want {
			t.Errorf("%s, what is held: %v old, want %v (%v)", name, held.Oldest, tc.want, err)
		}
	}
}

// Keys and leases of workspaces for which a token is not valid are left out before anything is ranked, added up, cut
// off or estimated.
func TestOtherWorkspacesAreLeftOutBeforeRanking(t *testing.T) {
	held := func(workspace string, sinceMs int64) heartbeat.Held {
		return heartbeat.Held{Kind: heartbeat.HeldLease, Workspace: []byte(workspace), Namespace: []byte("n"), Identifier: []byte("a"), SinceMs: sinceMs, Amount: 1}
	}
	foreign := hot("a", 900, 900, 1000)
	foreign.Workspace = []byte("other")
	store := topReports{reportOf(t, "eu", 99_000, heartbeat.Top{Hot: []heartbeat.TopKey{foreign, hot("b", 7, 7, 10)},
		Denied: []heartbeat.TopKey{foreign, hot("b", 7, 0, 10)}, Held: []heartbeat.Held{held("other", 1), held("w", 2)}})}
	visible, err := workspaces.New("w", "unknown")
	if err != nil {
		t.Fatal(err)
	}
	for _, denied := range []bool{false, true} {
		got, err := ListTopKeys(t.Context(), store, TopQuery{Denied: denied, Limit: 1, Visible: visible}, time.Minute)
		if err != nil || len(got.Keys) != 1 || got.Keys[0].Workspace != "w" || got.Total != 7 {
			t.Errorf("denied %v: %+v, %v", denied, got, err)
		}
	}
	list, err := ListHeld(t.Context(), store, TopQuery{Limit: 1, Visible: visible}, time.Minute)
	if err != nil || len(list.Held) != 1 || list.Held[0].Workspace != "w" {
		t.Errorf("%+v, %v", list, err)
	}
	e, err := EstimateLimits(t.Context(), limitRows{topReports: store, looked: new(int)},
		[]Change{{Workspace: "w", Namespace: "n", Pattern: "*", Limit: 1}}, visible, time.Minute)
	if err != nil || e.Reported != 1 || e.Matched != 1 {
		t.Errorf("%+v, %v", e, err)
	}
}

// Sums are bounded like counts.
func TestTopKeysDoNotOverflow(t *testing.T) {
	const most = 1<<62 - 1
	var store topReports
	for i := range 5 {
		store = append(store, reportOf(t, fmt.Sprint("r", i), 1, heartbeat.Top{Hot: []heartbeat.TopKey{hot("a", most, most, 1)}, Denied: []heartbeat.TopKey{hot("a", most, 0, 1)}}))
	}
	for _, denied := range []bool{false, true} {
		if got, err := ListTopKeys(t.Context(), store, TopQuery{Denied: denied, Limit: 1}, time.Minute); err != nil || got.Keys[0].Count != most || got.Total != most {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestTopQueryNamesWhatIsWrong(t *testing.T) {
	for says, q := range map[string]TopQuery{
		"limit is 0":       {},
		"limit is 101":     {Limit: 101},
		"workspace is 192": {Workspace: strings.Repeat("w", 192), Limit: 1},
		"namespace is 256": {Namespace: strings.Repeat("n", 256), Limit: 1},
	} {
		if _, err := ListTopKeys(t.Context(), topReports{}, q, time.Minute); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%+v: %v, want %q", q, err, says)
		}
	}
}

// "If several nodes report the same entry, the list has it once, from the node with the latest end". Refused leases are
// denied keys.
func TestHeldIsMergedOverNodes(t *testing.T) {
	held := func(identifier string, since, ends int64, mark uint64) heartbeat.Held {
		return heartbeat.Held{Kind: heartbeat.HeldLease, Workspace: []byte("w"), Namespace: []byte("n"), Identifier: []byte(identifier),
			Holder: []byte("h"), SinceMs: since, EndsMs: ends, Amount: 1, Mark: mark}
	}
	refused := hot("a", 4, 0, 2)
	refused.DurationMs = 0
	one := reportOf(t, "eu", 99_000, heartbeat.Top{Held: []heartbeat.Held{held("a", 10, 500, 7), held("a", 30, 0, 0), held("a", 30, 0, 0)},
		Refused: []heartbeat.TopKey{refused}})
	two := reportOf(t, "eu", 98_000, heartbeat.Top{Held: []heartbeat.Held{held("a", 10, 900, 7), held("b", 20, 0, 0)}})
	three := reportOf(t, "us", 98_000, heartbeat.Top{Held: []heartbeat.Held{held("a", 10, 300, 7)}})
	one.Node, two.Node, three.Node = "one", "two", "three"
	store := topReports{one, two, three, {Region: "us", Document: []byte("{")}}
	got, err := ListHeld(t.Context(), store, TopQuery{Limit: 10}, time.Minute)
	if err != nil || got.Nodes != 3 || got.Unreadable != 1 || got.Oldest != 2*time.Second {
		t.Fatalf("%+v: %v", got, err)
	}
	var words []string
	for _, h := range got.Held {
		words = append(words, fmt.Sprint(h.Identifier, " ", h.Region, " ", h.Node, " ", h.SinceMs, " ", h.EndsMs))
	}
	if want := []string{"a eu two 10 900", "a us three 10 300", "b eu two 20 0", "a eu one 30 0", "a eu one 30 0"}; !reflect.DeepEqual(words, want) {
		t.Errorf("%q, want %q", words, want)
	}
	if got, _ := ListHeld(t.Context(), store, TopQuery{Identifier: "b", Limit: 10}, time.Minute); len(got.Held) != 1 {
		t.Errorf("%+v", got.Held)
	}
	for words, q := range map[string]TopQuery{"limit is 0": {}, "identifier is 256": {Limit: 1, Identifier: strings.Repeat("x", 256)},
		"workspace is 192": {Limit: 1, Workspace: strings.Repeat("x", 192)}} {
		if _, err := ListHeld(t.Context(), store, q, time.Minute); !errors.Is(err, controlplane.ErrInvalid) || !strings.Contains(err.Error(), words) {
			t.Errorf("%+v: %v", q, err)
		}
	}
	denied, err := ListTopKeys(t.Context(), store, TopQuery{Denied: true, Limit: 10}, time.Minute)
	if err != nil || len(denied.Keys) != 1 || denied.Keys[0].Count != 4 || denied.Keys[0].DurationMs != 0 {
		t.Errorf("%+v: %v", denied, err)
	}
}
