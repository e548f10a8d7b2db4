package hunt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/sim/hunt/internal/plan"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// operators holds the present and the past settings in MySQL. Nodes apply them later.
type operators struct {
	world *world

	mu        sync.Mutex
	overrides []store.OverrideRow
	limits    map[int64]bool // all that were ever set by an override
	resets    []store.ResetRow
	versions  map[string]int64 // of tunings, by region, "" for all
	version   int64            // of the latest change
	rule      store.NamespaceRow
	trials    map[string]memstore.Trial // by region, "" for all
	ends      []time.Time               // of trials, by their numbers from 1 on
}

// begin writes the settings with which a history begins.
func (o *operators) begin() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	f := o.world.plan.Fleet
	for _, s := range o.world.plan.Steps {
		if s.Do == Ask && s.Limit > 0 {
			o.limits[s.Limit] = true
		}
	}
	o.setRule(f.Mode, f.Share, f.Precise)
	return o.tune("", f.Tuning)
}

// operate performs an operators' step.
func (o *operators) operate(s Step) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch s.Do {
	case Override, Unset:
		o.override(s)
	case Reset:
		o.reset(o.world.plan.Fleet.Keys[s.Key].Name)
	case Rule:
		o.setRule(s.Mode, s.Waits, o.rule.Window == store.WindowPrecise)
	case Reframe:
		mode, _ := window.ParseMode(o.rule.Mode)
		o.setRule(mode, o.rule.NodeShare == "wait", s.Precise)
	case Tune:
		if err := o.tune(o.region(s), s.Tuning); err != nil {
			o.world.record.violate("error", "tune: %v", err)
		}
	case Try:
		if err := o.try(s); err != nil {
			o.world.record.violate("error", "try: %v", err)
		}
	}
}

// region returns the region to which a step's tuning applies.
func (o *operators) region(s Step) string {
	if s.All {
		return ""
	}
	return o.world.regions[s.Region].name
}

// override sets, changes or deletes an override.
func (o *operators) override(s Step) {
	pattern := s.Pattern()
	o.overrides = slices.DeleteFunc(o.overrides, func(row store.OverrideRow) bool { return row.Pattern == pattern })
	if s.Do == Override {
		o.overrides = append(o.overrides, store.OverrideRow{
			Workspace: workspace, Namespace: namespace, Pattern: pattern,
			Limit: s.Limit, DurationMs: s.Window.Milliseconds(),
		})
		o.limits[s.Limit] = true
	}
	o.world.Counts.SetOverrides(o.overrides...)
}

// tune stores a new version of the tuning.
func (o *operators) tune(region string, t tuning.Tuning) error {
	document, err := t.Document()
	if err != nil {
		return err
	}
	o.version++
	o.versions[region] = o.version
	o.world.Counts.SetTuning(region, o.version, document)
	return nil
}

// tuned returns the version of a region's tuning.
func (o *operators) tuned(region string) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return cmp.Or(o.versions[region], o.versions[""])
}

func (o *operators) setRule(mode window.Mode, waits, precise bool) {
	o.rule = store.NamespaceRow{
		Workspace: workspace, Namespace: namespace, Mode: mode.String(), NodeShare: "flush",
		Window: store.WindowCells,
	}
	if precise && mode == window.Exact { // the estimate mode takes cells alone
		o.rule.Window = store.WindowPrecise
	}
	if waits {
		o.rule.NodeShare = "wait"
	}
	if o.world.plan.Fleet.Strict {
		o.rule.Outage = "closed"
	}
	o.world.Counts.SetNamespaces(append(heldRules(o.world.plan.Fleet), o.rule)...)
}

// ruled returns the namespace's row.
func (o *operators) ruled() store.NamespaceRow {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rule
}

// resetSkew is how much longer a reset stays than its cells, by MySQL's clock.
const resetSkew = 20 * time.Second

// reset makes the fleet forget the counts of a key.
func (o *operators) reset(identifier string) {
	now := time.Now()
	row := store.ResetRow{
		Workspace: workspace, Namespace: namespace, Identifier: identifier, Generation: 1,
		AtMs: now.UnixMilli(), ExpiresAtMs: now.Add(2*o.world.plan.Longest() + resetSkew).UnixMilli(),
	}
	o.resets = slices.DeleteFunc(o.resets, func(old store.ResetRow) bool {
		if old.Identifier == identifier {
			row.Generation, row.AtMs = old.Generation+1, max(row.AtMs, old.AtMs+1)
		}
		return old.Identifier == identifier
	})
	o.resets = append(o.resets, row)
	o.world.Counts.SetResets(o.resets...)
}

// lastReset returns the latest reset of an identifier.
func (o *operators) lastReset(identifier string) (last window.Reset) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, row := range o.resets {
		if row.Identifier == identifier {
			last = window.Reset{Generation: window.Generation(row.Generation), AtMs: row.AtMs}
		}
	}
	return last
}

// expires reports whether the latest reset of an identifier is about to expire by some clock, or has expired. Nodes
// then forget it.
func (o *operators) expires(identifier string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	const clocks = 30 * time.Second
	return slices.ContainsFunc(o.resets, func(row store.ResetRow) bool {
		return row.Identifier == identifier && row.ExpiresAtMs < time.Now().Add(clocks).UnixMilli()
	})
}

// counts reports whether cost accepted in a cell still counts, because no reset has come since.
func (o *operators) counts(cell window.Cell) bool {
	return cell.Generation == generation(o.lastReset(cell.Identifier), cell.Sequence, cell.Duration)
}

// limitWasSet reports whether a limit is, or once was, a key's limit.
func (o *operators) limitWasSet(key int, limit int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return limit == o.world.plan.Fleet.Keys[key].Limit || o.limits[limit]
}

// inForce returns the limit and window by which nodes must decide on a key once they have all settings.
func (o *operators) inForce(key int) (limit int64, duration time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	k := o.world.plan.Fleet.Keys[key]
	limit, duration = k.Limit, k.Duration
	for _, pattern := range []string{plan.Every, k.Name} {
		for _, row := range o.overrides {
			if row.Pattern != pattern {
				continue
			}
			if limit, duration = row.Limit, k.Duration; row.DurationMs > 0 {
				duration = time.Duration(row.DurationMs) * time.Millisecond
			}
		}
	}
	return limit, duration
}

// arrive waits until the operators' settings are in force on all nodes. After within it returns a check that lists the
// settings that are not.
func (o *operators) arrive(within time.Duration) *check {
	for until := time.Now().Add(within); ; time.Sleep(lookEvery / 4) {
		c := &check{world: o.world}
		for _, l := range c.lives() {
			for key := range c.plan.Fleet.Keys {
				c.settings(l, key)
			}
		}
		if len(c.broken) == 0 || !time.Now().Before(until) {
			return c
		}
	}
}

// settings compares a node's settings with the operators' settings.
func (c *check) settings(l *life, key int) {
	x, ok := c.explain(l, key, c.violate)
	if !ok {
		return
	}
	limit, duration := c.operators.inForce(key)
	if x.Decision.Limit != limit || x.Duration != duration {
		c.violate("set", "%v decides on k%d by %d in %v, and %d in %v is set", l, key, x.Decision.Limit, x.Duration,
			limit, duration)
	}
	if rule := c.operators.ruled(); x.Mode != rule.Mode || x.NodeShare != rule.NodeShare ||
		x.Window != string(rule.Window) {
		c.violate("set", "%v decides by %s, %s, %s, and %s, %s, %s is set", l, x.Mode, x.NodeShare, x.Window, rule.Mode,
			rule.NodeShare, rule.Window)
	}
	if version := c.operators.tuned(l.node.region.name); x.TuningVersion != version {
		c.violate("set", "%v is tuned by version %d, and %d is set", l, x.TuningVersion, version)
	}
	number, ending := c.operators.tried(l.node.region.name, l.process())
	if x.Trial != number && !ending {
		c.violate("set", "%v runs trial %d, and it is to run %d", l, x.Trial, number)
	}
	by, last := judgedBy(&x), c.operators.lastReset(x.Identifier)
	if by.reset != last && !c.operators.expires(x.Identifier) {
		c.violate("set", "%v decides on k%d by reset %d, and %d is the last one", l, key, by.reset.Generation,
			last.Generation)
	}
}

// bound returns how long settings take to reach all nodes where nothing fails. A relay has them after a round
// of the change feed and a look, and a node after a look of its own; the stores add their delays.
func (o *operators) bound() time.Duration {
	p := o.world.plan
	t := p.Slowest()
	looks := time.Duration((2 + t.Jitter) * float64(t.SettingsInterval))
	return looks + 2*t.FeedInterval.Std() + 8*(p.Fleet.MySQLTrip+p.Fleet.OriginTrip) + lookEvery
}

// versioned returns MySQL's settings with a version of their rows, as an origin does.
type versioned struct{ *memstore.Counts }

// Settings implements store.Settings.
func (v versioned) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	rows, err := v.Counts.Settings(ctx, region)
	if err != nil {
		return rows, err
	}
	same := rows
	same.NodesLive, same.Trial.Left = 0, 0
	text, err := json.Marshal(same)
	rows.Version = fmt.Sprintf("%x", sha256.Sum256(text))
	return rows, err
}
