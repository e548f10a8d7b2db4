package storetest_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/dataplane/storetest"
	"github.com/weirhq/weir/dataplane/storetest/internal/suite"
	"github.com/weirhq/weir/shared/window"
)

func TestOriginSubject(t *testing.T) {
	fault := os.Getenv(suite.FaultVariable)
	storetest.TestOrigin(t, func(testing.TB) storetest.Origin {
		var passed atomic.Int64
		// The origin's clock is behind, but not by so much that it is still in the first step of a cell's history.
		clock := func() time.Time { return time.Now().Add(-2*time.Minute + time.Duration(passed.Load())) }
		var dips atomic.Bool
		var latest atomic.Int64
		servers := func() time.Time {
			now := clock()
			switch {
			case fault == "small steps are noticed" && dips.Swap(false):
				now = now.Add(-time.Second)
			case fault == "steps are not noticed":
				latest.Store(max(latest.Load(), now.UnixNano()))
				now = time.Unix(0, latest.Load())
			}
			return now
		}
		h := memstore.NewOrigin(memstore.OriginOptions{Clock: servers, Shards: shardsOf(fault)})
		ways := []*memstore.Origin{h}
		return storetest.Origin{
			Origin: withPartFault(&originSubject{Origin: h, fault: fault, seen: make(map[string]string)}),
			Client: func(testing.TB) store.Origin {
				way := h.Client()
				ways = append(ways, way)
				if fault == "another way has fewer parts" {
					return struct{ bareOrigin }{way}
				}
				return withPartFault(&originSubject{Origin: way, fault: fault, seen: make(map[string]string)})
			},
			Lose: func(lose bool) {
				for _, way := range ways {
					way.Faults.LoseReplies(lose)
				}
			},
			Wipe: func(testing.TB) { h.Wipe() },
			State: func(testing.TB) func(testing.TB) {
				state := h.State()
				return func(testing.TB) { h.Rollback(state) }
			},
			Clock:     func(testing.TB) time.Time { return clock() },
			Histories: true,
			Pass:      func(_ testing.TB, d time.Duration) { passed.Add(int64(d)) },
			Step: func(_ testing.TB, d time.Duration) {
				passed.Add(int64(d))
				dips.Store(d < 0)
			},
		}
	})
}

// shardsOf returns 1, except for a fault that shows only with several groups.
func shardsOf(fault string) int {
	if strings.Contains(fault, "group") {
		return 3
	}
	return 1
}

// originFaults are faults of an Origin, each with the beginning of the name of the subtest that must find it.
var originFaults = map[string]string{
	"a method of a part has another signature": "parts/are_whole",
	"a method of a part is missing":            "parts/are_whole",
	"a mailbox that no relay fills":            "parts/are_whole",
	"a wrapper hides parts":                    "parts/are_not_hidden",
	"another way has fewer parts":              "parts/are_those_of_every_way",

	"repetitions count":                   "Send/a_chunk_is_applied",
	"answers from the back":               "Send/adds_each_cost",
	"limits are lost":                     "Changes/are_cells_with_a_Limit",
	"an earlier epoch fits":               "an_epoch/changes_when",
	"Restore is lost":                     "an_epoch/the_total",
	"Known is added":                      "an_emptied_origin_ends",
	"adds past AtMost":                    "Send_up_to_AtMost/adds_each_cost",
	"bounded costs are decided each time": "Send_up_to_AtMost/the_same_again",
	"what was added is forgotten":         "Send_up_to_AtMost/the_same_again",
	"reports no lost bounded cost":        "a_failover/loses_no_answered_bounded",
	"slots past the limit":                "Grants_to_nodes/are_granted_while",
	"slots are new each time":             "Grants_to_nodes/are_granted_once",
	"late slots are applied":              "Grants_to_nodes/stay_as_they_are",
	"slots never end":                     "Grants_to_nodes/end_with",
	"all said slots are held":             "Grants_to_nodes/that_the_origin_does_not",
	"recovering origins grant":            "Grants_to_nodes/that_an_emptied",
	"starved nodes are not told":          "Grants_to_nodes/are_spare",
	"leases past the limit":               "Grants_to_leases/are_granted_while",
	"leases are new each time":            "Grants_to_leases/are_one",
	"leases never end":                    "Grants_to_leases/end_with",
	"renewals acquire":                    "Grants_to_leases/end_with",
	"recovering origins grant leases":     "Grants_to_leases/that_an_emptied",
	"nodes do not see leases":             "Grants_to_leases/and_slots",
	"numbers are forgotten at once":       "Grants_to_nodes/that_were_handed_back",
	"renewals starve nodes":               "Grants_to_leases/that_were_not_granted",
	"heals any epoch":                     "Raise/in_another_epoch",
	"the clock is the process's":          "Get/reports_the_shard",
	"marks are early":                     "Histories/mark_what_the_total",
	"histories are lost":                  "Histories/mark_what_the_total",
	"refused costs begin histories":       "Histories/are_of_cells",
	"steps are not noticed":               "a_clock_that_is_set_back/has_the_cells",
	"small steps are noticed":             "a_clock_that_is_set_back/by_no_more",
	"never looks at ctx":                  "all_methods_obey_ctx",
	"reports no lost chunk":               "a_failover/loses_no_answered_chunk",
	"repeats what it has":                 "a_failover/is_reported_where",
	"tells smaller totals":                "Apply/lifts_foreign",
	"the lease is for everybody":          "Lease/makes_holder",
	"more changes are not told":           "Changes/are_at_most_max",
	"changes come a page at a time":       "Changes/are_as_many",

	"told settings are never replaced":   "Settings/are_those_that_were_told_last",
	"no settings are empty ones":         "Settings/are_ErrNoSettings",
	"settings of any relay are taken":    "Settings/are_heeded_of_the_relay",
	"late settings are young":            "Settings/are_as_old_as_the_moment",
	"problems of settings are lost":      "Settings/are_what_was_told",
	"settings are never old":             "Settings/grow_old",
	"beats are taken when they are read": "Heartbeats/are_what_nodes_said",
	"any beat of a node is stored":       "Heartbeats/are_a_node's_last",
	"top keys of beats are lost":         "Heartbeats/keep_the_top_keys",
}

// withPartFault returns a subject without some of its parts, if that is its fault.
func withPartFault(h *originSubject) store.Origin {
	switch h.fault {
	case "a method of a part has another signature":
		return otherHold{h}
	case "a method of a part is missing":
		return withoutHolds{h, h}
	case "a mailbox that no relay fills":
		return onlyMailbox{h, h}
	case "a wrapper hides parts":
		return struct{ store.Origin }{h}
	}
	return h
}

type otherHold struct{ *originSubject }

func (otherHold) Hold(context.Context, store.HoldCall) error { return nil }

// withoutHolds is a Granter but for Reservations.
type withoutHolds struct {
	bareOrigin
	mostOfGranter
}

type (
	bareOrigin    interface{ store.Origin }
	mostOfGranter interface{ store.Grants }
)

// onlyMailbox is a Mailbox, and not Relayed.
type onlyMailbox struct {
	bareOrigin
	bareMailbox
}

type bareMailbox interface{ store.Mailbox }

// originSubject is a memstore.Origin with a single fault.
type originSubject struct {
	*memstore.Origin
	fault  string
	number int64
	seen   map[string]string
}

func (h *originSubject) Grants(ctx context.Context, shard int, c store.GrantCall) (store.GrantReply, error) {
	c.Asks = slices.Clone(c.Asks)
	for i := range c.Asks {
		h.spoil(&c.Asks[i])
	}
	switch h.fault {
	case "slots are new each time":
		h.number++
		c.Node += 100 * uint64(h.number)
	case "late slots are applied":
		h.number++
		c.Number = h.number
	case "never looks at ctx":
		ctx = context.Background()
	}
	reply, err := h.Origin.Grants(ctx, shard, c)
	for i := range reply.Answers {
		if h.fault == "starved nodes are not told" {
			reply.Answers[i].Starved = false
		}
	}
	return reply, err
}

// spoil changes a request by the subject's fault.
func (h *originSubject) spoil(a *store.GrantAsk) {
	if a.Lease == "" {
		switch h.fault {
		case "slots past the limit":
			a.Limit = store.CountMax
		case "slots never end":
			a.TTL = max(a.TTL, time.Minute)
		case "all said slots are held":
			a.Limit += a.Have
		case "recovering origins grant":
			a.TTL = min(a.TTL, time.Millisecond)
		case "numbers are forgotten at once":
			if a.Have+a.Want == 0 {
				a.TTL = min(a.TTL, time.Second)
			}
		}
		return
	}
	switch h.fault {
	case "leases past the limit":
		a.Limit = a.Want * store.CountMax
	case "leases are new each time":
		h.number++
		a.Lease += fmt.Sprint(h.number)
	case "leases never end":
		a.TTL = max(a.TTL, time.Minute)
	case "renewals acquire":
		a.Limit = max(a.Limit, 9)
	case "renewals starve nodes":
		a.Have, a.Want = 0, a.Have+a.Want
	case "recovering origins grant leases":
		a.TTL = min(a.TTL, time.Millisecond)
	case "nodes do not see leases":
		a.Key.Identifier += "'"
	}
}

func (h *originSubject) Send(ctx context.Context, c store.Chunk) (store.Reply, error) {
	c.Costs = slices.Clone(c.Costs)
	for i := range c.Costs {
		cost := &c.Costs[i]
		switch h.fault {
		case "limits are lost":
			cost.Limit = 0
		case "an earlier epoch fits":
			cost.Epoch = 0
		case "Restore is lost":
			cost.Restore = 0
		case "Known is added":
			cost.Add, cost.Known = cost.Add+cost.Known, 0
		case "adds past AtMost":
			if cost.AtMost != 0 {
				cost.AtMost = math.MaxInt64
			}
		}
	}
	bounded := c.Bounded()
	switch {
	case h.fault == "repetitions count", h.fault == "bounded costs are decided each time" && bounded:
		h.number++
		c.Number = h.number
	case h.fault == "reports no lost chunk", h.fault == "reports no lost bounded cost" && bounded:
		c.After = nil
	case h.fault == "repeats what it has":
		c.Repeats = false
	case h.fault == "never looks at ctx":
		ctx = context.Background()
	}
	reply, err := h.Origin.Send(ctx, c)
	asks := !slices.ContainsFunc(c.Costs, func(c store.Cost) bool { return c.AtMost >= 0 })
	for i := range reply.Totals {
		total := &reply.Totals[i]
		switch h.fault {
		case "marks are early":
			total.History = total.History.Empty().Count(total.Region, 0, 1)
		case "histories are lost":
			total.History = 0
		}
		if h.fault == "what was added is forgotten" && asks {
			reply.Totals[i].Added = false
		}
	}
	if h.fault == "answers from the back" {
		slices.Reverse(reply.Totals)
	}
	return reply, err
}

func (h *originSubject) Read(ctx context.Context, cells []window.Cell) (store.Reply, error) {
	reply, err := h.Origin.Read(ctx, cells)
	if h.fault == "the clock is the process's" {
		reply.Now = time.Now()
	}
	for i := range reply.Totals {
		if h.fault == "refused costs begin histories" {
			reply.Totals[i].History = window.BeginHistory(100)
		}
	}
	return reply, err
}

func (h *originSubject) Healed(ctx context.Context, shard int, epoch store.Epoch) error {
	if h.fault == "heals any epoch" {
		changes, err := h.Changes(ctx, shard, 1)
		if err != nil {
			return err
		}
		epoch = changes.Epoch
	}
	return h.Origin.Healed(ctx, shard, epoch)
}

func (h *originSubject) Apply(ctx context.Context, shard int, totals []store.Foreign) (int, error) {
	totals = slices.Clone(totals)
	for i := range totals {
		if h.fault == "tells smaller totals" {
			totals[i].Count--
		}
	}
	return h.Origin.Apply(ctx, shard, totals)
}

func (h *originSubject) Lease(ctx context.Context, shard int, holder string, ttl time.Duration) (store.Lease, error) {
	lease, err := h.Origin.Lease(ctx, shard, holder, ttl)
	if h.fault == "the lease is for everybody" {
		lease.Holder = holder
	}
	return lease, err
}

func (h *originSubject) Changes(ctx context.Context, shard, max int) (store.Changes, error) {
	if h.fault == "changes come a page at a time" {
		max = min(max, store.ChangesPage)
	}
	changes, err := h.Origin.Changes(ctx, shard, max)
	if h.fault == "more changes are not told" {
		changes.Cells, changes.More = changes.Cells[:len(changes.Cells)/2], false
	}
	return changes, err
}

func (h *originSubject) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	rows, err := h.Origin.Settings(ctx, region)
	switch {
	case h.fault == "no settings are empty ones" && errors.Is(err, store.ErrNoSettings):
		err = nil
	case h.fault == "settings are never old":
		rows.Age = 0
	}
	return rows, err
}

func (h *originSubject) StoreSettings(ctx context.Context, shard int, holder string, rows store.SettingsRows,
	asOf time.Time,
) error {
	switch h.fault {
	case "told settings are never replaced":
		if _, err := h.Settings(ctx, ""); err == nil {
			return nil
		}
	case "settings of any relay are taken":
		if lease, err := h.Lease(ctx, shard, holder, time.Millisecond); err == nil {
			holder = lease.Holder
		}
	case "problems of settings are lost":
		rows.Problem = nil
	case "late settings are young":
		asOf = time.Time{}
	}
	return h.Origin.StoreSettings(ctx, shard, holder, rows, asOf)
}

func (h *originSubject) Heartbeats(ctx context.Context, shard, max int) ([]store.StoredHeartbeat, error) {
	beats, err := h.Origin.Heartbeats(ctx, shard, max)
	switch h.fault {
	case "beats are taken when they are read":
		return beats, errors.Join(err, h.Origin.AckHeartbeats(ctx, shard, beats))
	case "top keys of beats are lost":
		for i := range beats {
			beats[i].Top = ""
		}
	}
	return beats, err
}

func (h *originSubject) AckHeartbeats(ctx context.Context, shard int, beats []store.StoredHeartbeat) error {
	if h.fault == "any beat of a node is stored" {
		kept, err := h.Origin.Heartbeats(ctx, shard, 100)
		if err != nil {
			return err
		}
		beats = append(kept, beats...)
	}
	return h.Origin.AckHeartbeats(ctx, shard, beats)
}
