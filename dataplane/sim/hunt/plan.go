package hunt

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// Plan is one history before it has happened: a fleet, and what callers, operators and faults do to it, when.
type Plan struct {
	Seed  uint64
	Fleet Fleet
	Steps []Step // by At
	Rests bool   // it is watched until nothing of it is left
}

// Fleet is what a history begins with.
type Fleet struct {
	Nodes   []int // by region, >= 1 each
	Relays  []int // by region, >= 1 each: how many nodes, from 0 on, know MySQL and run a relay
	Late    []int // by region: how many nodes, from the last one back, are not there before their Join
	Shards  int   // of each region's origin: servers
	Buckets int   // 0, or how many buckets the one shard has, which is a Cluster then
	Keys    []Key
	Held    []Key  // of which costs are reserved by id; may be none
	Slots   []Slot // of which leases are held; may be none
	Closed  bool   // an outage grants nothing of Held and Slots
	Strict  bool   // an outage grants nothing of Keys
	Mode    window.Mode
	Share   bool // the namespace waits for its share: store.NamespaceRow.NodeShare

	Room int // keys that a node's table holds: dataplane.Config.EntriesMax; 0: more than there are

	Patient               bool            // it is looked at for the whole of Settle
	Begin                 time.Duration   // how far into an hour the fleet starts
	OriginTrip, MySQLTrip time.Duration   // round trips
	PeerTrip              time.Duration   // 0: relays have no peers
	Ahead                 []time.Duration // by region: its origin's clock
	Tuning                tuning.Tuning
}

// parts is how many parts of an origin lose their counts apart.
func (f Fleet) parts() int { return max(f.Shards, f.Buckets) }

// Key is one identifier in one window.
type Key struct {
	Name     string
	Limit    int64
	Duration time.Duration
}

// Slot is one identifier with a concurrency limit.
type Slot struct {
	Name  string
	Limit int64
	TTL   time.Duration // of all requests
}

// costsMax is how many keys a reservation has.
const costsMax = 3

// Costs are of the keys of a reservation, in its order; 0 of those that it does not have.
type Costs [costsMax]int64

// Verb is what a Step does.
type Verb string

// What callers do.
const (
	Ask     Verb = "ask"     // one request
	Burst   Verb = "burst"   // several at one moment, on one node
	Batch   Verb = "batch"   // one request for two keys
	Reserve Verb = "reserve" // a request that is settled After with Actual
	Hurry   Verb = "hurry"   // one request, whose caller leaves After
	Bulk    Verb = "bulk"    // one request for Count items, of all keys in turn
	Peek    Verb = "peek"    // a look that counts nothing
	Refund  Verb = "refund"  // a cost is given back that some node may have accepted
)

// What callers do about a reservation with an ID, at any node of its region, once or several times.
const (
	Hold       Verb = "hold"   // Costs of keys from Key on are reserved for After
	SpendHold  Verb = "spend"  // so much was spent
	SettleHold Verb = "settle" // so much was spent, and no more will be
	CancelHold Verb = "cancel" // no more will be spent
	ExtendHold Verb = "extend" // it ends After from now
)

// What holders of leases do. One with an ID does it at any node of the region, once or several times.
const (
	Acquire Verb = "acquire" // a lease for After, or for ever; the holder waits up to Delay and ends with its node
	Token   Verb = "token"   // a lease with an ID
	Renew   Verb = "renew"   // the lease of an ID
	Release Verb = "release" // the lease of an ID
)

// What operators do. Nodes have it once a relay has carried it to their origin, and they have read it there.
const (
	Override Verb = "override" // a key's limit is another one; Window, its duration too
	Unset    Verb = "unset"    // an override is deleted
	Reset    Verb = "reset"    // what was counted of a key is forgotten
	Tune     Verb = "tune"     // a new version of the tuning, of a region or All
	Rule     Verb = "rule"     // the namespace has another Mode, or Waits
	Try      Verb = "try"      // a Share of a region's nodes, or of All, runs a tuning for After from each renewal on
)

// What nodes do.
const (
	Kill  Verb = "kill"  // kill -9; a new node starts After
	Stop  Verb = "stop"  // an orderly end; a new node starts After
	Join  Verb = "join"  // a node is there from now on
	Leave Verb = "leave" // an orderly end, for good
	Die   Verb = "die"   // kill -9, for good
)

// Faults, each of which ends After.
const (
	Cut       Verb = "cut"        // nothing arrives from a node at its origin
	Refuse    Verb = "refuse"     // the origin refuses a node's calls
	Mute      Verb = "mute"       // a share of the replies to a node is lost
	Repeat    Verb = "repeat"     // a share of the calls to the origin arrive twice, and all take up to Delay longer
	Slow      Verb = "slow"       // calls take up to Delay longer, and overtake each other
	CutMySQL  Verb = "cut mysql"  // nothing arrives from a node's relay at MySQL
	CutPeers  Verb = "cut peers"  // what a node's relay tells its peers does not arrive
	Jumble    Verb = "jumble"     // a share of it arrives twice, and all up to Delay later
	Isolate   Verb = "isolate"    // a region is cut off from MySQL, and tells its peers nothing
	LagCounts Verb = "lag counts" // the replica that counts are imported from receives nothing
	SlowMySQL Verb = "slow mysql" // every statement takes Delay longer
	FailMySQL Verb = "fail mysql" // a share of all statements fails
	HoldFeed  Verb = "hold news"  // rows of news are committed Delay later than they are written

	RefuseCalls      Verb = "refuse calls"      // an origin, or its Part, refuses Calls of all nodes, and answers others
	RefuseStatements Verb = "refuse statements" // MySQL refuses Calls, and executes others
)

// Faults that happen at a moment.
const (
	Wipe     Verb = "wipe"      // an origin, or its Part, is empty
	Failover Verb = "failover"  // an origin, or its Part, has forgotten what it was told in the After before
	Unlease  Verb = "unlease"   // an origin has forgotten who relays it; the relay does not know
	LoseFeed Verb = "lose news" // MySQL has lost the last Count rows of a region
	Clock    Verb = "clock"     // a node's clock moves by Delay
)

// Step is one thing that happens. Fields that its Verb does not name mean nothing.
type Step struct {
	At           time.Duration // since the history began
	Do           Verb
	Region, Node int // Node is in its Region
	Key, Second  int
	All          bool          // of an override or a tuning: for all keys or regions that have none of their own
	Limit        int64         // of an override
	Window       time.Duration // of an override; 0 keeps the key's
	Mode         window.Mode
	Waits        bool // Fleet.Share
	Tuning       tuning.Tuning
	Cost, Actual int64
	Count        int // of requests, of rows, or of renewals of a trial
	ID           int // of a reservation or a lease; each is of one region
	Costs        Costs
	Returned     bool // of a reservation: what was not spent when it ends
	Part         int  // of an origin, from 1 on: a shard, or a bucket; 0 is all of it
	Calls        Calls
	Share        float64
	Delay        time.Duration
	After        time.Duration
}

// String is the step in a transcript.
func (s Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%9.3fs  r%d.%d  %s", s.At.Seconds(), s.Region, s.Node, s.Do)
	switch s.Do {
	case Ask, Peek, Refund:
		fmt.Fprintf(&b, " k%d for %d", s.Key, s.Cost)
	case Hurry:
		fmt.Fprintf(&b, " k%d for %d within %v", s.Key, s.Cost, s.After)
	case Bulk:
		fmt.Fprintf(&b, " from k%d on for %d, %d times", s.Key, s.Cost, s.Count)
	case Burst:
		fmt.Fprintf(&b, " k%d for %d, %d times", s.Key, s.Cost, s.Count)
	case Batch:
		fmt.Fprintf(&b, " k%d for %d, k%d for %d", s.Key, s.Cost, s.Second, s.Actual)
	case Reserve:
		fmt.Fprintf(&b, " k%d for %d, settle %d after %v", s.Key, s.Cost, s.Actual, s.After)
	case Hold, SpendHold, SettleHold, CancelHold, ExtendHold, Acquire, Token, Renew, Release:
		s.held(&b)
	case Override:
		fmt.Fprintf(&b, " %s: %d, %v", s.keys(), s.Limit, s.Window)
	case Unset, Reset:
		fmt.Fprintf(&b, " %s", s.keys())
	case Tune:
		fmt.Fprintf(&b, " %s%s", s.regions(), s.tuned())
	case Try:
		fmt.Fprintf(&b, " %s, %.2f of the nodes, for %v, %d times%s", s.regions(), s.Share, s.After, s.Count, s.tuned())
	case Rule:
		fmt.Fprintf(&b, " %v, waits: %v", s.Mode, s.Waits)
	case RefuseCalls, RefuseStatements:
		fmt.Fprintf(&b, ": %s%s for %v", s.Calls, s.part(), s.After)
	case Mute, FailMySQL:
		fmt.Fprintf(&b, " %.2f for %v", s.Share, s.After)
	case Jumble, Repeat:
		fmt.Fprintf(&b, " %.2f twice, by %v for %v", s.Share, s.Delay, s.After)
	case Slow, SlowMySQL, HoldFeed:
		fmt.Fprintf(&b, " by %v for %v", s.Delay, s.After)
	case LoseFeed:
		fmt.Fprintf(&b, " %d rows", s.Count)
	case Clock:
		fmt.Fprintf(&b, " by %v", s.Delay)
	case Join, Leave, Die, Unlease:
	case Wipe:
		b.WriteString(s.part())
	case Failover:
		fmt.Fprintf(&b, "%s to what it was %v before", s.part(), s.After)
	default:
		fmt.Fprintf(&b, " for %v", s.After)
	}
	return b.String()
}

// held is what a step says of a reservation or a lease.
func (s Step) held(b *strings.Builder) {
	switch s.Do {
	case Hold:
		fmt.Fprintf(b, " #%d: %v from h%d on for %v, returned: %v", s.ID, s.Costs, s.Key, s.After, s.Returned)
	case SpendHold, SettleHold:
		fmt.Fprintf(b, " #%d: %v", s.ID, s.Costs)
	case ExtendHold:
		fmt.Fprintf(b, " #%d for %v", s.ID, s.After)
	case Acquire:
		fmt.Fprintf(b, " s%d for %v, within %v", s.Key, s.After, s.Delay)
	case Token:
		fmt.Fprintf(b, " #%d of s%d, within %v", s.ID, s.Key, s.Delay)
	default:
		fmt.Fprintf(b, " #%d", s.ID)
	}
}

// part names a Part.
func (s Step) part() string {
	if s.Part == 0 {
		return ""
	}
	return fmt.Sprint(" of part ", s.Part)
}

// keys is the pattern of what an override is for.
func (s Step) keys() string {
	if s.All {
		return every
	}
	return fmt.Sprint("k", s.Key)
}

// regions names what a tuning is for.
func (s Step) regions() string {
	if s.All {
		return "all"
	}
	return fmt.Sprint("r", s.Region)
}

// tuned is a tuning in a transcript.
func (s Step) tuned() string {
	t := s.Tuning
	return fmt.Sprintf(": news %v, settings %v, ticks %v, fresh for %v, strict for %v, shared from %v, floor %v, "+
		"step %v, jitter %v", t.FeedInterval, t.SettingsInterval, t.ReplayTick, t.FreshFor, t.StrictFor, t.MinGlobalDuration,
		t.Floor, t.Step, t.Jitter)
}

// changes tells whether any step is one of some kinds.
func (p Plan) changes(kinds ...Verb) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return slices.Contains(kinds, s.Do) })
}

// slowest has of each field the largest value that is ever in force.
func (p Plan) slowest() tuning.Tuning {
	most := p.Fleet.Tuning
	for _, s := range p.Steps {
		if t := s.Tuning; s.Do == Tune || s.Do == Try {
			most.Floor, most.Step = max(most.Floor, t.Floor), max(most.Step, t.Step)
			most.Jitter = max(most.Jitter, t.Jitter)
			most.FeedInterval = max(most.FeedInterval, t.FeedInterval)
			most.SettingsInterval = max(most.SettingsInterval, t.SettingsInterval)
			most.ReplayTick = max(most.ReplayTick, t.ReplayTick)
			most.MinGlobalDuration = max(most.MinGlobalDuration, t.MinGlobalDuration)
		}
	}
	return most
}

// mayFill tells whether nodes' tables may be full. Keys without an entry are claimed, like shares.
func (p Plan) mayFill() bool { return p.Fleet.Room > 0 }

// claims tells whether nodes ever claim what they grant.
func (p Plan) claims() bool {
	waits := func(s Step) bool { return s.Do == Rule && s.Waits }
	return p.Fleet.Share || p.mayFill() || slices.ContainsFunc(p.Steps, waits)
}

// losesCalls reports whether calls to an origin ever fail. Then the sketch of a full table may have to take a batch's
// cost on untracked keys, although the origin has answered what the batch was decided by.
func (p Plan) losesCalls() bool { return p.changes(Cut, Refuse, Mute, Slow, Repeat, RefuseCalls) }

// shares tells whether regions always share a window.
func (p Plan) shares(duration time.Duration) bool {
	return duration >= p.slowest().MinGlobalDuration.Std()
}

// longest is the longest window that a history has.
func (p Plan) longest() (longest time.Duration) {
	for _, k := range p.Fleet.Keys {
		longest = max(longest, k.Duration)
	}
	for _, k := range p.Fleet.Held {
		longest = max(longest, k.Duration)
	}
	for _, s := range p.Steps {
		longest = max(longest, s.Window)
	}
	return longest
}

// Without leaves out the steps whose indexes are left out.
func (p Plan) Without(left Set) Plan {
	kept := make([]Step, 0, len(p.Steps))
	for i, s := range p.Steps {
		if !left[i] {
			kept = append(kept, s)
		}
	}
	p.Steps = kept
	return p
}
