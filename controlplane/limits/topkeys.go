package limits

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/controlplane"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
	"github.com/weirhq/weir/shared/workspaces"
)

const (
	// TopKeysMax is the most keys in a listing.
	TopKeysMax = 100
	// TopReportsMax is the most nodes' reports that a listing reads: 16 KiB each.
	TopReportsMax = 2000
)

// TopQuery selects keys, or held leases and reservations.
type TopQuery struct {
	Workspace, Namespace string // "" for all
	Identifier           string // "": all
	Denied               bool   // of keys: denied keys instead of hot keys
	Limit                int    // 1 to TopKeysMax

	Visible *workspaces.Set // keys of other workspaces are left out
}

// Validate reports the first field outside its bounds.
func (q TopQuery) Validate() error {
	return cmp.Or(controlplane.ValidateCount("limit", q.Limit, 1, TopKeysMax),
		controlplane.ValidateLength("workspace", q.Workspace, window.WorkspaceBytesMax),
		controlplane.ValidateLength("namespace", q.Namespace, window.NamespaceBytesMax),
		controlplane.ValidateLength("identifier", q.Identifier, window.IdentifierBytesMax))
}

func (q *TopQuery) wants(workspace, namespace, identifier string) bool {
	return q.Visible.Has(workspace) && (q.Workspace == "" || q.Workspace == workspace) &&
		(q.Namespace == "" || q.Namespace == namespace) && (q.Identifier == "" || q.Identifier == identifier)
}

// Reports describes the nodes' reports that an answer is based on.
type Reports struct {
	Now        time.Time // by the clock of the database
	Nodes      int       // that reported
	Unreadable int       // nodes whose report could not be read, in whole or in part
	Truncated  bool      // there are more than TopReportsMax
	Oldest     time.Duration
}

// TopKeys are the keys that nodes report, merged.
type TopKeys struct {
	Reports
	Keys  []TopKey // largest count first
	Total int64    // how many of the reported keys match the query
}

// TopKey is a key in TopKeys.
type TopKey struct {
	Workspace, Namespace, Identifier string
	DurationMs, Limit                int64     // DurationMs 0: of leases that were refused; Limit -1: unknown
	Count                            int64     // of a hot key its cost, of a denied key its requests
	More                             int64     // of denied keys: how many more it may be
	ReportedAt                       time.Time // when the oldest report of it was made, by the database's clock
	Regions                          []TopKeyRegion
}

// TopKeyRegion is a region's part of a key's count.
type TopKeyRegion struct {
	Region string
	Count  int64
}

// TopReport is a node's stored report.
type TopReport struct {
	Region   string
	Node     string
	SeenAt   time.Time
	SentAtMs int64  // of the heartbeat that was seen, by the node's clock
	Document []byte // see heartbeat.ReadTop
}

// madeAt returns when a report was made, by the database's clock. A heartbeat without a report leaves the row's earlier
// report in place, so a report can be older than the heartbeat in the same row.
func (r *TopReport) madeAt(top *heartbeat.Top) time.Time {
	if top.AtMs <= 0 || r.SentAtMs <= top.AtMs {
		return r.SeenAt
	}
	return time.UnixMilli(max(0, r.SeenAt.UnixMilli()-(r.SentAtMs-top.AtMs)))
}

// TopStore reads nodes' reports.
type TopStore interface {
	// TopReports returns at most rows reports of nodes whose heartbeats arrived within a time, newest first, and the clock
	// of the database.
	TopReports(ctx context.Context, within time.Duration, rows int) (now time.Time, reports []TopReport, err error)
}

// ListTopKeys merges live nodes' reports. A node reports at most its first 20 keys, so a key with requests spread
// thinly over many nodes can be missing, or have too small a count.
func ListTopKeys(ctx context.Context, store TopStore, q TopQuery, liveWithin time.Duration) (TopKeys, error) {
	if err := q.Validate(); err != nil {
		return TopKeys{}, err
	}
	answer, err := mergeTopKeys(ctx, store, &q, liveWithin)
	answer.Keys = answer.Keys[:min(len(answer.Keys), q.Limit)]
	return answer, err
}

// mergeTopKeys is ListTopKeys without a limit.
func mergeTopKeys(ctx context.Context, store TopStore, q *TopQuery,
	liveWithin time.Duration) (answer TopKeys, err error) {
	found := make(topMerge)
	answer.Reports, err = readReports(ctx, store, liveWithin, func(r *TopReport, top *heartbeat.Top, at time.Time) {
		if q.Denied {
			found.addAll(r.Region, at, top.Denied, q)
			found.addAll(r.Region, at, top.Refused, q)
		} else {
			found.addAll(r.Region, at, top.Hot, q)
		}
	})
	if err != nil {
		return answer, fmt.Errorf("list top keys: %w", err)
	}
	answer.Keys, answer.Total = found.ranked()
	return answer, nil
}

// readReports calls take with each readable report, and the time at which the report was made.
func readReports(ctx context.Context, store TopStore, liveWithin time.Duration,
	take func(*TopReport, *heartbeat.Top, time.Time)) (all Reports, err error) {
	now, reports, err := store.TopReports(ctx, liveWithin, TopReportsMax+1)
	if err != nil {
		return all, err
	}
	all.Now, all.Truncated = now, len(reports) > TopReportsMax
	for _, r := range reports[:min(len(reports), TopReportsMax)] {
		top, err := heartbeat.ReadTop(r.Document)
		if err != nil {
			all.Unreadable++
			continue
		}
		all.Nodes++
		if top.Unread > 0 {
			all.Unreadable++
		}
		at := r.madeAt(&top)
		all.Oldest = max(all.Oldest, now.Sub(at))
		take(&r, &top, at)
	}
	return all, nil
}

// topMerge has keys by their names.
type topMerge map[topKeyID]*merging

type topKeyID struct {
	workspace, namespace, identifier string
	durationMs                       int64
}

type merging struct {
	key     TopKey
	regions map[string]int64
}

func (m topMerge) addAll(region string, at time.Time, keys []heartbeat.TopKey, q *TopQuery) {
	for i := range keys {
		k := &keys[i]
		if q.wants(string(k.Workspace), string(k.Namespace), string(k.Identifier)) {
			m.add(region, at, k, q.Denied)
		}
	}
}

// add merges a node's report. Denials of several nodes add up, because each node counts its own. The cost of a hot key
// is a count of which all nodes of its region have most, so the largest count stands for its region. Regions add up,
// and the sum is at least the largest total that any node reports.
func (m topMerge) add(region string, at time.Time, k *heartbeat.TopKey, denied bool) {
	id := topKeyID{string(k.Workspace), string(k.Namespace), string(k.Identifier), k.DurationMs}
	to := m[id]
	if to == nil {
		to = &merging{regions: make(map[string]int64), key: TopKey{
			Workspace: id.workspace, Namespace: id.namespace, Identifier: id.identifier, DurationMs: id.durationMs, Limit: -1,
			ReportedAt: at}}
		m[id] = to
	}
	if at.Before(to.key.ReportedAt) {
		to.key.ReportedAt = at
	}
	if k.Limit >= 0 && (to.key.Limit < 0 || k.Limit < to.key.Limit) {
		to.key.Limit = k.Limit
	}
	if denied {
		to.regions[region] = sum(to.regions[region], k.Count)
		to.key.More = sum(to.key.More, k.More)
		return
	}
	to.regions[region] = max(to.regions[region], k.Regional)
	to.key.Count = max(to.key.Count, k.Count)
}

const topCountMax = 1<<62 - 1

// sum adds counts, up to the largest count.
func sum(a, b int64) int64 { return min(a+min(b, topCountMax-a), topCountMax) }

func (m topMerge) ranked() (keys []TopKey, total int64) {
	for _, from := range m {
		k := from.key
		var all int64
		for region, n := range from.regions {
			all = sum(all, n)
			if n > 0 {
				k.Regions = append(k.Regions, TopKeyRegion{region, n})
			}
		}
		k.Count = max(k.Count, all)
		total = sum(total, k.Count)
		slices.SortFunc(k.Regions, func(a, b TopKeyRegion) int {
			return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Region, b.Region))
		})
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b TopKey) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Workspace, b.Workspace),
			strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Identifier, b.Identifier), cmp.Compare(a.DurationMs, b.DurationMs))
	})
	return keys, total
}
