package sim

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/sim/internal/bubble"
	"github.com/weirhq/weir/dataplane/sim/internal/network"
	"github.com/weirhq/weir/dataplane/sim/internal/weigh"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
	"github.com/weirhq/weir/shared/window"
)

// ErrInvalid is wrapped by every error about the input of a simulation. The message has the field and its bound.
var ErrInvalid = errors.New("invalid simulation")

// Bounds of a run.
const (
	DurationMin   = time.Second
	DurationMax   = 24 * time.Hour
	RedisDelayMax = 10 * time.Second
)

// Options configure a run of a scenario. The zero value uses the scenario's own values and seed 0.
type Options struct {
	// Seed decides all random draws: the same seed gives the same run, except for the figures that the package's
	// documentation lists under Seeds.
	Seed uint64

	// Tuning is the fleet's tuning; nil means the default with the scenario's changes. TuningName is its name in the
	// report.
	Tuning     *tuning.Tuning
	TuningName string

	// Duration is the duration of the traffic, DurationMin to DurationMax; 0 means the scenario's.
	Duration time.Duration

	// NodeShare is the node share of the namespace of all requests, "flush" or "wait". If empty, the scenario's is used,
	// which is the default unless the scenario is about another node share.
	NodeShare string

	// RedisDelay is the duration of every call to a region's Redis, instead of the scenario's delay and jitter; 0 means
	// the scenario's. If RedisGone is set, Redis refuses every call from the end of the warm-up to the end of the traffic.
	RedisDelay time.Duration
	RedisGone  bool

	// KeepJitter leaves the limiters' own jitter on. That is closer to a real fleet, but no two runs are the same. Without
	// it, intervals are exact, and nodes start at moments drawn from the seed.
	KeepJitter bool

	// Window is how the namespace of all requests counts a duration; the zero value means the scenario's. Scenarios of the
	// estimate mode, and of relays with synthetic nodes, accept only store.WindowCells.
	Window store.Window

	// Unweighed leaves Report.BytesPerKey at 0. Set it if you do not need the figure, because measuring it takes time.
	Unweighed bool

	plant plant
}

// plant makes faults that the checks must find. Tests use it.
type plant struct {
	origin func(store.FullOrigin) store.FullOrigin
}

// Run simulates a scenario in a bubble of its own. A process runs only one simulation at a time, so calls wait for each
// other. Inside a bubble, you must use Simulate instead.
func Run(s Scenario, o Options) (Report, error) {
	report, err := bubble.Run(func() (Report, error) { return Simulate(s, o) })
	if err == nil && !o.Unweighed && s.fleet == nil {
		var each float64
		each, err = weigh.BytesPerKey(report.Simulated.Keys)
		report.BytesPerKey = round(each, 1)
	}
	return report, err
}

// Simulate runs a scenario in the testing/synctest bubble that it is called in. It does
// not measure BytesPerKey.
func Simulate(s Scenario, o Options) (Report, error) {
	set, name, err := o.tuning(s)
	if err != nil {
		return Report{}, err
	}
	duration := o.Duration
	if duration == 0 {
		duration = s.Duration
	}
	if duration < DurationMin || duration > DurationMax {
		return Report{}, fmt.Errorf("%w: duration is %v (%v to %v)", ErrInvalid, duration, DurationMin, DurationMax)
	}
	report := Report{Scenario: s.Name, Summary: s.Summary, Seed: o.Seed, Tuning: TuningReport{name, set}}
	if err := o.apply(&s); err != nil {
		return Report{}, err
	}
	namespace, err := o.namespace(s)
	if err != nil {
		return Report{}, err
	}
	if s.fleet != nil {
		return report, newRelayWorld(s, set, firstTraffic(set), o.Seed).live(s, duration, &report)
	}
	if !o.KeepJitter {
		set.Jitter = 0
	}
	document, err := set.Document()
	if err != nil {
		return Report{}, err
	}
	w := newLimiterWorld(s.Shape, document, firstTraffic(set), rest(set)+3*auditAfter, o.Seed)
	w.plant, w.losesCost, w.keepsBooks = o.plant, s.LosesCost, o.RedisGone
	if err := w.set(namespace); err != nil {
		return Report{}, err
	}
	if err := w.live(s, duration, set, &report); err != nil {
		return Report{}, err
	}
	return report, nil
}

// apply applies the options to the scenario. It returns an error if an option cannot apply to it.
func (o Options) apply(s *Scenario) error {
	switch {
	case o.NodeShare != "" && o.NodeShare != nodeShareFlush && o.NodeShare != nodeShareWait:
		return fmt.Errorf("%w: node share is %q (wait or flush)", ErrInvalid, o.NodeShare)
	case o.RedisDelay < 0 || o.RedisDelay > RedisDelayMax:
		return fmt.Errorf("%w: delay of Redis is %v (0s to %v)", ErrInvalid, o.RedisDelay, RedisDelayMax)
	case s.fleet != nil && (o.NodeShare != "" || o.RedisDelay != 0 || o.RedisGone):
		return fmt.Errorf("%w: the nodes of scenario %s have no limiters: node share and Redis cannot be set", ErrInvalid,
			s.Name)
	}
	if o.NodeShare != "" {
		s.Namespace.NodeShare = o.NodeShare
	}
	if o.RedisDelay != 0 {
		s.Shape.Origin.Delay, s.Shape.Origin.Jitter = o.RedisDelay, 0
	}
	if plan, warmup := s.plan, s.warmup; o.RedisGone {
		s.plan = func(w *world, duration time.Duration) agenda {
			g, warmup := plan(w, duration), warmup(duration)
			g.during(warmup, duration-time.Nanosecond, toOrigin(w.nodes), network.Down)
			return g
		}
	}
	return nil
}

// warmup returns the part of the traffic that the figures per second leave out.
func (s *Scenario) warmup(duration time.Duration) time.Duration {
	if s.Warmup >= duration {
		return 0
	}
	return s.Warmup
}

// namespace returns the settings of the namespace of all requests.
func (o Options) namespace(s Scenario) (store.NamespaceRow, error) {
	row := s.Namespace
	switch o.Window {
	case "":
		return row, nil
	case store.WindowCells:
	case store.WindowPrecise:
		if s.fleet != nil || row.Mode == window.Estimate.String() {
			return row, fmt.Errorf("%w: window is %q (scenario %s takes %s)", ErrInvalid, o.Window, s.Name, store.WindowCells)
		}
	default:
		return row, fmt.Errorf("%w: window is %q (%s or %s)", ErrInvalid, o.Window, store.WindowCells, store.WindowPrecise)
	}
	row.Window = o.Window
	return row, nil
}

// firstTraffic returns the first full minute at which every node has started and has read its settings. Windows begin
// then.
func firstTraffic(set tuning.Tuning) time.Time {
	return time.Now().Add(bootTime(set)).Truncate(time.Minute).Add(time.Minute)
}

// bootTime returns the time that nodes need before traffic. All start within one settings interval. Their heartbeats
// reach MySQL through the relay within another interval, and the number of nodes comes back within a third.
func bootTime(set tuning.Tuning) time.Duration {
	const settle = 5 * time.Second
	return 4*set.SettingsInterval.Std() + settle
}

func (o Options) tuning(s Scenario) (tuning.Tuning, string, error) {
	if o.Tuning != nil {
		return *o.Tuning, o.TuningName, o.Tuning.Validate()
	}
	set, name := tuning.Default(), "default"
	if s.Tune != nil {
		s.Tune(&set)
		name = "default for " + s.Name
	}
	return set, name, nil
}

// rest returns how long after the last request relays need to publish and store all counts.
func rest(set tuning.Tuning) time.Duration {
	const stored = 15 * time.Second
	return stored + 4*set.FeedInterval.Std()
}

// live runs the world: start, traffic, rest, stop, and audit.
func (w *world) live(s Scenario, duration time.Duration, set tuning.Tuning, report *Report) error {
	if err := w.bootAll(set); err != nil {
		return err
	}
	g := s.plan(w, duration)
	g.each(time.Second, time.Second, w.checkTables)
	w.traffic(g, s, duration, w.ledger.warmedUp, func() { w.audit(false) }, report)
	if s.SyncedEvery > 0 {
		ticks := s.SyncedEvery.Seconds() / report.Tuning.Document.ReplayTick.Std().Seconds()
		report.OriginReadsPerTickUntiered = round(float64(len(w.ledger.order))/ticks, 3)
	}

	// Traffic has ended. Counts still need a while to arrive, and then nodes stop in order.
	time.Sleep(rest(set))
	w.requests.Wait()
	w.stopAll()
	w.audit(true)
	w.sum(report, len(w.ledger.order), w.ledger.groups(report.Simulated.MeasuredS), &w.ledger.convergence)
	report.SinceAcceptedMs = w.ledger.fromAccepted.summary()
	return nil
}

// traffic plays the plan, and measures the load on the servers after the warm-up. audit checks the cells that have
// expired.
func (w *world) traffic(g agenda, s Scenario, duration time.Duration, warmedUp, audit func(), report *Report) {
	warmup := s.warmup(duration)
	var before reading
	g.at(warmup, func() {
		before = w.read()
		w.decisions.waits.forget()
		warmedUp()
	})
	g.each(auditAfter, auditAfter, audit)
	w.play(g, duration)
	w.rates(report, before, w.read(), duration-warmup)
	report.Simulated.DurationS = duration.Seconds()
	report.Simulated.MeasuredS = (duration - warmup).Seconds()
}

// bootAll starts the nodes, at moments spread over a settings interval, as in a real fleet. It returns when the traffic
// should begin.
func (w *world) bootAll(set tuning.Tuning) error {
	time.Sleep(time.Until(w.began.Add(-bootTime(set)))) // idle loops would take real time, too
	if err := w.storeSettings(); err != nil {
		return err
	}
	random := w.stream("starts", 0)
	failed := make([]error, len(w.nodes))
	var starting sync.WaitGroup
	for i, n := range w.nodes {
		wait := time.Duration(random.Float64() * float64(set.SettingsInterval.Std()))
		starting.Go(func() {
			time.Sleep(wait)
			failed[i] = w.boot(n)
		})
	}
	starting.Wait()
	time.Sleep(time.Until(w.began))
	return errors.Join(failed...)
}

// stopTimeout is how long a node may take to send its remaining cost. With a Redis that takes a second for each call, a
// node with 100,000 keys needs ten minutes.
const stopTimeout = 15 * time.Minute

func (w *world) stopAll() {
	var stops []func()
	for _, n := range w.nodes {
		stops = append(stops, func() { n.life.Load().Stop(stopTimeout) })
	}
	w.End(stops...)
}
