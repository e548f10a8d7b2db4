// Package plan draws histories from seeds, and describes them: a fleet, and the steps of callers, operators and faults.
// It plays nothing. Package hunt plays plans, and checks the outcome.
package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// Plan is a history before it has happened: a fleet, the calls of callers and operators, and faults, each with its
// time.
type Plan struct {
	Seed  uint64
	Fleet Fleet
	Steps []Step // by At
	Rests bool   // it is watched until no data is left of it
}

// restMax bounds the longest window of a Plan that Rests.
const restMax = 5 * time.Second

// Fleet is the fleet with which a history begins.
type Fleet struct {
	Nodes   []int // by region, >= 1 each
	Relays  []int // by region, >= 1 each: how many nodes, from 0 on, have MySQL and run a relay
	Late    []int // by region: how many nodes, from the last back, are not there before their Join
	Shards  int   // of each region's origin: servers
	Buckets int   // 0, or how many buckets the only shard has, which is a Cluster then
	Keys    []Key
	Held    []Key  // keys whose cost is reserved by id; may be none
	Slots   []Slot // keys of which leases are held; may be none
	Closed  bool   // an outage grants nothing of Held and Slots
	Strict  bool   // an outage grants nothing of Keys
	Mode    window.Mode
	Share   bool // the namespace waits for its share: store.NamespaceRow.NodeShare
	Precise bool // the namespace has a precise window

	Room int // keys that a node's table holds: dataplane.Config.EntriesMax; 0: enough for all keys

	Patient               bool            // it is looked at for the whole of Settle
	Begin                 time.Duration   // how far into an hour the fleet starts
	OriginTrip, MySQLTrip time.Duration   // round trips
	PeerTrip              time.Duration   // 0: relays have no peers
	Ahead                 []time.Duration // by region: its origin's clock
	Tuning                tuning.Tuning
}

// Parts returns how many parts an origin has that lose their counts separately.
func (f Fleet) Parts() int { return max(f.Shards, f.Buckets) }

// Key is an identifier in a window.
type Key struct {
	Name     string
	Limit    int64
	Duration time.Duration
}

// Slot is an identifier with a concurrency limit.
type Slot struct {
	Name  string
	Limit int64
	TTL   time.Duration // of all requests
}

// CostsMax is how many keys a reservation has.
const CostsMax = 3

// Costs are the costs of a reservation's keys, in its order. Keys that the reservation lacks have 0.
type Costs [CostsMax]int64

// Verb names the action of a Step.
type Verb string

// Callers' actions.
const (
	Ask     Verb = "ask"     // a single request
	Burst   Verb = "burst"   // several requests at the same moment, on the same node
	Batch   Verb = "batch"   // a single request for two keys
	Reserve Verb = "reserve" // a request that is settled After with Actual
	Hurry   Verb = "hurry"   // a single request, whose caller leaves After
	Bulk    Verb = "bulk"    // a single request for Count items, of all keys in turn
	Peek    Verb = "peek"    // a look that counts nothing
	Refund  Verb = "refund"  // a cost is given back that some node may have accepted
)

// Callers' actions on a reservation with an ID, at any node of its region, once or several times.
const (
	Hold       Verb = "hold"   // Costs of keys from Key on are reserved for After
	SpendHold  Verb = "spend"  // so much was spent
	SettleHold Verb = "settle" // so much was spent, and no more will be
	CancelHold Verb = "cancel" // no more will be spent
	ExtendHold Verb = "extend" // it ends After from now
)

// Lease holders' actions. A holder with an ID acts at any node of the region, once or several times.
const (
	Acquire Verb = "acquire" // a lease for After, or for ever; the holder waits up to Delay and ends with its node
	Token   Verb = "token"   // a lease with an ID
	Renew   Verb = "renew"   // the lease of an ID
	Release Verb = "release" // the lease of an ID
)

// Operators' actions. Nodes apply them once a relay has carried them to their origin, and they have read them there.
const (
	Override Verb = "override" // a key gets another limit; with Window, also another duration
	Unset    Verb = "unset"    // an override is deleted
	Reset    Verb = "reset"    // the counts of a key are forgotten
	Tune     Verb = "tune"     // a new version of the tuning, of a region or All
	Rule     Verb = "rule"     // the namespace has another Mode, or Waits
	Reframe  Verb = "window"   // the namespace has a Precise window, or cells
	Try      Verb = "try"      // a Share of a region's nodes, or of All, runs a tuning for After from each renewal on
)

// Nodes' actions.
const (
	Kill  Verb = "kill"  // kill -9; a new node starts After
	Stop  Verb = "stop"  // an orderly end; a new node starts After
	Join  Verb = "join"  // a node is there from now on
	Leave Verb = "leave" // an orderly end, for good
	Die   Verb = "die"   // kill -9, for good
)

// Faults. Each ends After its beginning.
const (
	Cut       Verb = "cut"        // nothing arrives from a node at its origin
	Refuse    Verb = "refuse"     // the origin refuses a node's calls
	Mute      Verb = "mute"       // a share of the replies to a node is lost
	Repeat    Verb = "repeat"     // a share of the calls to the origin arrive twice, and all take up to Delay longer
	Slow      Verb = "slow"       // calls take up to Delay longer, and overtake each other
	CutMySQL  Verb = "cut mysql"  // nothing arrives from a node's relay at MySQL
	CutPeers  Verb = "cut peers"  // a node's relay publishes to its peers, and nothing arrives
	Jumble    Verb = "jumble"     // a share of it arrives twice, and all up to Delay later
	Isolate   Verb = "isolate"    // a region is cut off from MySQL, and publishes nothing to its peers
	LagCounts Verb = "lag counts" // the replica that counts are imported from receives nothing
	SlowMySQL Verb = "slow mysql" // every statement takes Delay longer
	FailMySQL Verb = "fail mysql" // a share of all statements fails
	HoldFeed  Verb = "hold news"  // rows of the change feed are committed Delay later than they are written

	RefuseCalls      Verb = "refuse calls"      // an origin, or its Part, refuses Calls of all nodes, and answers others
	RefuseStatements Verb = "refuse statements" // MySQL refuses Calls, and executes others

	SetClock Verb = "set clock" // an origin's clock is Delay ahead
)

// Faults that happen at a moment.
const (
	Wipe     Verb = "wipe"      // an origin, or its Part, is empty
	Failover Verb = "failover"  // an origin, or its Part, loses the writes of the After before
	Unlease  Verb = "unlease"   // an origin has forgotten which relay has its lease, and the relay has not noticed
	LoseFeed Verb = "lose news" // MySQL has lost the last Count rows of a region
	Clock    Verb = "clock"     // a node's clock moves by Delay
)

// IsFault reports whether a step with the verb is a fault.
func (v Verb) IsFault() bool {
	switch v {
	case Ask, Burst, Batch, Reserve, Hurry, Bulk, Peek, Refund, Join:
		return false
	}
	return !v.ofGrants() && !v.IsOperators()
}

// ofGrants reports whether a step with the verb makes a call about a reservation or a lease.
func (v Verb) ofGrants() bool {
	switch v {
	case Hold, SpendHold, SettleHold, CancelHold, ExtendHold, Acquire, Token, Renew, Release:
		return true
	}
	return false
}

// IsOperators reports whether a step with the verb changes settings.
func (v Verb) IsOperators() bool {
	switch v {
	case Override, Unset, Reset, Tune, Rule, Reframe, Try:
		return true
	}
	return false
}

// Step is an event of a history. Its Verb names the fields that it uses; other fields have no meaning.
type Step struct {
	At           time.Duration // since the history began
	Do           Verb
	Region, Node int // Node is in its Region
	Key, Second  int
	All          bool          // of an override or a tuning: for all keys or regions that have none of their own
	Limit        int64         // of an override, or of an Ask; with 0 the key keeps its limit
	Window       time.Duration // of an override; 0 keeps the key's
	Mode         window.Mode
	Waits        bool // Fleet.Share
	Precise      bool
	Tuning       tuning.Tuning
	Cost, Actual int64
	Count        int // of requests, of rows, or of renewals of a trial
	ID           int // of a reservation or a lease; each ID belongs to a single region
	Costs        Costs
	Returned     bool // of a reservation: its unspent cost is returned when it ends
	Part         int  // of an origin, from 1 on: a shard, or a bucket; 0 is all of it
	Calls        Calls
	Share        float64
	Delay        time.Duration
	After        time.Duration
}

// String returns the step in a transcript.
func (s Step) String() string {
	return fmt.Sprintf("%9.3fs  r%d.%d  %s", s.At.Seconds(), s.Region, s.Node, s.Action())
}

// Action returns the step in a transcript, without its place and moment.
func (s Step) Action() string {
	var b strings.Builder
	b.WriteString(string(s.Do))
	switch s.Do {
	case Ask, Peek, Refund:
		fmt.Fprintf(&b, " k%d for %d", s.Key, s.Cost)
		if s.Limit > 0 {
			fmt.Fprintf(&b, " of %d", s.Limit)
		}
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
		fmt.Fprintf(&b, " %s: %d, %v", s.Pattern(), s.Limit, s.Window)
	case Unset, Reset:
		fmt.Fprintf(&b, " %s", s.Pattern())
	case Tune:
		fmt.Fprintf(&b, " %s%s", s.regions(), s.tuned())
	case Try:
		fmt.Fprintf(&b, " %s, %.2f of the nodes, for %v, %d times%s", s.regions(), s.Share, s.After, s.Count, s.tuned())
	case Rule:
		fmt.Fprintf(&b, " %v, waits: %v", s.Mode, s.Waits)
	case Reframe:
		fmt.Fprintf(&b, " precise: %v", s.Precise)
	case RefuseCalls, RefuseStatements:
		fmt.Fprintf(&b, ": %s%s for %v", s.Calls, s.OfPart(), s.After)
	case Mute, FailMySQL:
		fmt.Fprintf(&b, " %.2f for %v", s.Share, s.After)
	case Jumble, Repeat:
		fmt.Fprintf(&b, " %.2f twice, by %v for %v", s.Share, s.Delay, s.After)
	case Slow, SlowMySQL, HoldFeed, SetClock:
		fmt.Fprintf(&b, " by %v for %v", s.Delay, s.After)
	case LoseFeed:
		fmt.Fprintf(&b, " %d rows", s.Count)
	case Clock:
		fmt.Fprintf(&b, " by %v", s.Delay)
	case Join, Leave, Die, Unlease:
	case Wipe:
		b.WriteString(s.OfPart())
	case Failover:
		fmt.Fprintf(&b, "%s to what it was %v before", s.OfPart(), s.After)
	default:
		fmt.Fprintf(&b, " for %v", s.After)
	}
	return b.String()
}

// held prints a step's reservation or lease.
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

// Name names a step's reservation or lease.
func (s Step) Name() string { return fmt.Sprint("#", s.ID) }

// Items returns the costs of the keys that a step's reservation has.
func (s Step) Items() []int64 {
	n := slices.Index(s.Costs[:], 0)
	if n < 0 {
		n = len(s.Costs)
	}
	return s.Costs[:n]
}

// OfPart names the Part of an origin, or all of it.
func (s Step) OfPart() string {
	if s.Part == 0 {
		return ""
	}
	return fmt.Sprint(" of part ", s.Part)
}

// Every is the pattern of all keys.
const Every = "k*"

// Pattern returns the pattern of the keys of an override.
func (s Step) Pattern() string {
	if s.All {
		return Every
	}
	return fmt.Sprint("k", s.Key)
}

// regions prints the regions of a tuning.
func (s Step) regions() string {
	if s.All {
		return "all"
	}
	return fmt.Sprint("r", s.Region)
}

// tuned returns a tuning in a transcript.
func (s Step) tuned() string {
	t := s.Tuning
	return fmt.Sprintf(": news %v, settings %v, ticks %v, fresh for %v, strict for %v, shared from %v, floor %v, "+
		"step %v, jitter %v", t.FeedInterval, t.SettingsInterval, t.ReplayTick, t.FreshFor, t.StrictFor, t.MinGlobalDuration,
		t.Floor, t.Step, t.Jitter)
}

// Changes reports whether any step has one of the given kinds.
func (p Plan) Changes(kinds ...Verb) bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return slices.Contains(kinds, s.Do) })
}

// Fails reports whether any step is a fault.
func (p Plan) Fails() bool {
	return slices.ContainsFunc(p.Steps, func(s Step) bool { return s.Do.IsFault() })
}

// sort sorts the steps by At.
func (p *Plan) sort() {
	slices.SortStableFunc(p.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
}

// Slowest returns a tuning with the largest value of each field that is ever in force.
func (p Plan) Slowest() tuning.Tuning {
	most := p.Fleet.Tuning
	for _, s := range p.Steps {
		if t := s.Tuning; s.Do == Tune || s.Do == Try {
			most.Floor, most.Step = max(most.Floor, t.Floor), max(most.Step, t.Step)
			most.Jitter = max(most.Jitter, t.Jitter)
			most.FeedInterval = max(most.FeedInterval, t.FeedInterval)
			most.SettingsInterval = max(most.SettingsInterval, t.SettingsInterval)
			most.ReplayTick = max(most.ReplayTick, t.ReplayTick)
			most.FreshFor = max(most.FreshFor, t.FreshFor)
			most.MinGlobalDuration = max(most.MinGlobalDuration, t.MinGlobalDuration)
		}
	}
	return most
}

// MayFill reports whether nodes' tables may be full. Nodes then claim cost of keys without an entry, as they claim
// shares.
func (p Plan) MayFill() bool { return p.Fleet.Room > 0 }

// Claims reports whether nodes ever claim cost before they grant it.
func (p Plan) Claims() bool {
	waits := func(s Step) bool { return s.Do == Rule && s.Waits }
	return p.Fleet.Share || p.MayFill() || slices.ContainsFunc(p.Steps, waits)
}

// LosesCalls reports whether calls to an origin ever fail. Then the sketch of a full table may have to take a batch's
// cost on untracked keys, although the origin answered the read that the decision used.
func (p Plan) LosesCalls() bool { return p.Changes(Cut, Refuse, Mute, Slow, Repeat, RefuseCalls) }

// Shares reports whether regions always share a window.
func (p Plan) Shares(duration time.Duration) bool {
	return duration >= p.Slowest().MinGlobalDuration.Std()
}

// Longest returns the longest window of a history.
func (p Plan) Longest() (longest time.Duration) {
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

// unclean lists steps after which a node may pass more than a limit in a real window, or cost is missing in the log.
// Reasons are limits that are forgotten, settlements above them, and callers that do not wait for their origin's
// answer.
var unclean = []Verb{Reset, Reserve, Hurry, Kill, Die, Leave, Clock, Failover, Slow, Repeat}

// Clean reports whether no step is unclean.
func (p Plan) Clean() bool { return !p.Changes(unclean...) }

// Without returns the plan without the steps with the given indexes.
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
