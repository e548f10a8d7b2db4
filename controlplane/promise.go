package controlplane

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	// promisesLately is how many rollouts say how far previews are off: the newest that were measured.
	promisesLately = 10

	// promiseOffMax is how many times too low or too high the middle one of them may be, before a preview is refused.
	promiseOffMax = 2.0

	// Figures below these count as much: how far off a prediction of next to nothing is says nothing.
	promiseRowsLeast  = 10.0 // rows a second
	promiseDelayLeast = 1000 // ms

	promiseTimeMax = 30 * time.Second // of the simulation; see PreviewTimeMax
)

// Measured is what a fleet did under a tuning that was rolled out to all of it; nil is not measured.
type Measured struct {
	RowsPerS *float64 `json:"rows_per_s,omitempty"` // MySQL rows of all relays
	DelayMs  *float64 `json:"delay_ms,omitempty"`   // 99th percentile of convergence, of the slowest region
}

// Promise is what previews say of a rollout that is over, beside what was measured of it. No figure tells of
// overshoot: nodes cannot measure what they do not know of.
type Promise struct {
	Rollout string      `json:"-"`
	EndedMs int64       `json:"-"`
	Rows    *PromiseFit `json:"rows,omitempty"`  // MySQL rows a second, written and read
	Delay   *PromiseFit `json:"delay,omitempty"` // ms
}

// PromiseFit is a figure as it was predicted, and as it was.
type PromiseFit struct {
	Promised float64 `json:"promised"`
	Measured float64 `json:"measured"`
}

// PromiseStore keeps promises. All methods may be called at once.
type PromiseStore interface {
	// KeepPromise stores a promise. That of a rollout that has one already stays as it is.
	KeepPromise(ctx context.Context, p Promise) error
	// Promises are those of the rollouts that ended last, newest first.
	Promises(ctx context.Context, limit int) ([]Promise, error)
}

// PromiseAsk is a rollout that is done, with what was measured at its end.
type PromiseAsk struct {
	Rollout  string
	EndedMs  int64
	Old, New string // tuning documents
	Measured Measured
}

// Promises tells what previews are to be held to of a rollout; ok is false where it is not done, has left regions out
// or was not measured.
func (r *Rollout) Promises() (ask PromiseAsk, ok bool) {
	if r.Phase != RolloutDone || r.Measured == (Measured{}) || len(r.Touched) == 0 {
		return ask, false
	}
	ask = PromiseAsk{Rollout: r.ID, EndedMs: r.EndedMs, Old: r.Touched[0].Previous, New: r.Document, Measured: r.Measured}
	return ask, true
}

// measureAll is what all regions do at the end of a rollout: the zero value unless every one of them runs the tuning
// and is measured.
func (r *Rollout) measureAll() (all Measured) {
	var rows, delay float64
	for i := range r.Watch {
		if r.Watch[i].Share != nil { // its nodes are in the region's own watch, too
			continue
		}
		now := r.Watch[i].now()
		if now.RowsPerSecond == nil {
			return Measured{}
		}
		rows += *now.RowsPerSecond
		if now.ConvergenceMs != nil {
			delay = max(delay, *now.ConvergenceMs)
		}
	}
	if len(r.Watch) == 0 || !r.touchedScope().Rest {
		return Measured{}
	}
	all.RowsPerS = &rows
	if delay > 0 {
		all.DelayMs = &delay
	}
	return all
}

// KeepPromise simulates the fleet as it is, the way a preview does, and stores how the answer fits what was measured.
// A fleet of which heartbeats do not tell how many keys are active is not simulated.
func (p *Preview) KeepPromise(ctx context.Context, ask PromiseAsk) error {
	fleet, err := p.work.fleet(ctx)
	if err != nil {
		return err
	}
	shape, err := shapeOf(fleet, GivenShape{})
	if err != nil || slices.Contains(shape.Assumed, "keys") {
		return err
	}
	select {
	case p.busy <- struct{}{}:
		defer func() { <-p.busy }()
	case <-ctx.Done():
		return ctx.Err()
	}
	predicted, err := p.previewer.Preview(ctx, PreviewAsk{Shape: shape, Old: ask.Old, New: ask.New,
		TimeMaxMs: promiseTimeMax.Milliseconds()})
	if errors.Is(err, ErrInvalid) { // it takes longer than that
		return nil
	}
	if err != nil {
		return err
	}
	return p.promises.KeepPromise(ctx, promiseOf(ask, predicted.New))
}

func promiseOf(ask PromiseAsk, is Prediction) Promise {
	p := Promise{Rollout: ask.Rollout, EndedMs: ask.EndedMs}
	if rows := ask.Measured.RowsPerS; rows != nil {
		p.Rows = &PromiseFit{Promised: is.RowsWrittenPerS + is.RowsReadPerS, Measured: *rows}
	}
	if delay := ask.Measured.DelayMs; delay != nil {
		p.Delay = &PromiseFit{Promised: float64(is.ConvergenceP99Ms), Measured: *delay}
	}
	return p
}

// ModelRecord is how far previews were off lately.
type ModelRecord struct {
	Rollouts int // that were measured
	Rows     ModelFit
	Delay    ModelFit
}

// ModelFit is by how many times more was measured than predicted; less than 1: less was. 0 is not known.
type ModelFit struct {
	Middle float64 // the median of the rollouts
	Worst  float64 // the furthest from 1
}

func recordOf(promises []Promise) (m ModelRecord) {
	var rows, delays []float64
	for _, p := range promises {
		if p.Rows != nil {
			rows = append(rows, p.Rows.times(promiseRowsLeast))
		}
		if p.Delay != nil {
			delays = append(delays, p.Delay.times(promiseDelayLeast))
		}
	}
	m.Rollouts, m.Rows, m.Delay = len(promises), fitOf(rows), fitOf(delays)
	return m
}

func (f PromiseFit) times(least float64) float64 {
	return max(f.Measured, least) / max(f.Promised, least)
}

func fitOf(times []float64) (f ModelFit) {
	if len(times) == 0 {
		return f
	}
	slices.Sort(times)
	f.Middle = times[(len(times)-1)/2]
	f.Worst = times[0]
	if last := times[len(times)-1]; last*f.Worst > 1 {
		f.Worst = last
	}
	return f
}

// off is how many times too high or too low the middle one is; 0: not known.
func (f ModelFit) off() float64 {
	if f.Middle <= 0 {
		return 0
	}
	return max(f.Middle, 1/f.Middle)
}

// fits are the figures of which it is known how far off previews were.
func (m ModelRecord) fits() (words []string, off []float64) {
	last := "in the last rollout of all regions"
	if m.Rollouts > 1 {
		last = fmt.Sprintf("in the last %d rollouts of all regions", m.Rollouts)
	}
	for _, f := range []struct {
		what string
		fit  ModelFit
	}{{"MySQL rows a second", m.Rows}, {"the convergence delay", m.Delay}} {
		if f.fit.Middle > 0 {
			words = append(words, fmt.Sprintf("%s %s came to %.2g times what previews say (at the worst %.2g times)", last,
				f.what, f.fit.Middle, f.fit.Worst))
			off = append(off, f.fit.off())
		}
	}
	return words, off
}

// notes say how far previews were off.
func (m ModelRecord) notes() []string {
	words, _ := m.fits()
	return words
}

// refuse refuses a preview by a model that is too far off.
func (m ModelRecord) refuse() error {
	words, off := m.fits()
	for i := range words {
		if off[i] > promiseOffMax {
			return fmt.Errorf("%w: previews of this fleet are off by more than a factor of %g: %s; force makes it "+
				"anyway", ErrConflict, promiseOffMax, words[i])
		}
	}
	return nil
}

// model reads how far previews were off lately.
func (p *Preview) model(ctx context.Context) (ModelRecord, error) {
	kept, err := p.promises.Promises(ctx, promisesLately)
	if err != nil {
		return ModelRecord{}, fmt.Errorf("read how far previews were off: %w", err)
	}
	return recordOf(slices.DeleteFunc(kept, func(k Promise) bool { return !k.sound() })), nil
}

// sound refuses figures that are no measurements: another build may have written them.
func (p Promise) sound() bool {
	for _, f := range []*PromiseFit{p.Rows, p.Delay} {
		if f != nil && !(f.Promised >= 0 && f.Measured >= 0 && f.Promised+f.Measured < math.Inf(1)) {
			return false
		}
	}
	return p.Rows != nil || p.Delay != nil
}
