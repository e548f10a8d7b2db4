package sim

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/sim/internal/bubble"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/tuning"
)

// ErrInvalid is wrapped by every error about what was asked to be simulated: the
// message names the field and its bound.
var ErrInvalid = errors.New("invalid simulation")

// Bounds of a run.
const (
	DurationMin = time.Second
	DurationMax = 24 * time.Hour
)

// Options are how a scenario is run. The zero value is a good one.
type Options struct {
	// Seed decides everything that is drawn: the same seed, the same run, except for what
	// the package's documentation lists.
	Seed uint64

	// Tuning is what the fleet runs; nil is the default with the scenario's changes.
	// TuningName is what the report calls it.
	Tuning     *tuning.Tuning
	TuningName string

	// Duration is how long there is traffic, DurationMin to DurationMax; 0 is the
	// scenario's.
	Duration time.Duration

	// KeepJitter leaves the limiters' own jitter on: closer to a fleet, and no two runs
	// are the same. Without it intervals are exact, and nodes start at moments drawn
	// from the seed.
	KeepJitter bool

	// Unweighed leaves Report.BytesPerKey at 0, which takes time of its own to measure.
	Unweighed bool

	plant plant
}

// plant puts faults where there must be none, to see that the checks find them.
type plant struct {
	origin func(store.FullOrigin) store.FullOrigin
}

// Run simulates a scenario in a bubble of its own. Runs take turns: there is one at a
// time in a process. Inside of a bubble, use Simulate.
func Run(s Scenario, o Options) (Report, error) {
	report, err := bubble.Run(func() (Report, error) { return Simulate(s, o) })
	if err == nil && !o.Unweighed && s.fleet == nil {
		report.BytesPerKey, err = bytesPerKey(report.Simulated.Keys)
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
	w.plant, w.losesCost = o.plant, s.LosesCost
	if err := w.set(s.Namespace); err != nil {
		return Report{}, err
	}
	if err := w.live(s, duration, set, &report); err != nil {
		return Report{}, err
	}
	return report, nil
}

// firstTraffic is the first full minute at which every node has started and has read
// its settings: there windows begin.
func firstTraffic(set tuning.Tuning) time.Time {
	return time.Now().Add(bootTime(set)).Truncate(time.Minute).Add(time.Minute)
}

// bootTime is what nodes need before traffic: all start within one settings interval. Their heartbeats go by the relay
// to MySQL, and come back as a number of nodes, each within another one.
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

// rest is how long counts go on travelling after the last request: relays have told and stored
// what they hold by then.
func rest(set tuning.Tuning) time.Duration {
	const stored = 15 * time.Second
	return stored + 4*set.FeedInterval.Std()
}

// live is a world's life: start, traffic, rest, stop, and the books.
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

	// Traffic is over. Counts still travel for a while, and then nodes stop as they should.
	time.Sleep(rest(set))
	w.requests.Wait()
	w.stopAll()
	w.audit(true)
	w.sum(report, len(w.ledger.order), w.ledger.groups(report.Simulated.MeasuredS), &w.ledger.convergence)
	report.SinceAcceptedMs = w.ledger.fromAccepted.summary()
	return nil
}

// traffic plays what is planned, and measures what that asks of the servers once it is warm. audit closes the books on
// cells that are over.
func (w *world) traffic(g agenda, s Scenario, duration time.Duration, warmedUp, audit func(), report *Report) {
	warmup := s.Warmup
	if warmup >= duration {
		warmup = 0
	}
	var before reading
	g.at(warmup, func() {
		before = w.read()
		warmedUp()
	})
	g.each(auditAfter, auditAfter, audit)
	w.play(g, duration)
	w.rates(report, before, w.read(), duration-warmup)
	report.Simulated.DurationS = duration.Seconds()
	report.Simulated.MeasuredS = (duration - warmup).Seconds()
}

// bootAll starts the nodes, at moments spread over a settings interval, as a fleet's are,
// and returns when the first traffic is due.
func (w *world) bootAll(set tuning.Tuning) error {
	time.Sleep(time.Until(w.began.Add(-bootTime(set)))) // idle loops would take time, too
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

// stopTimeout is how long a node may take to send what is left.
const stopTimeout = 20 * time.Second

func (w *world) stopAll() {
	var stops []func()
	for _, n := range w.nodes {
		stops = append(stops, func() { n.life.Load().Stop(stopTimeout) })
	}
	w.End(stops...)
}
