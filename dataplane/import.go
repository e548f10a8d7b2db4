package dataplane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	importTimeout   = 30 * time.Second
	settingsTimeout = 5 * time.Second
)

// importState is where an import continues.
type importState struct {
	to        store.Cursor
	fullAt    time.Time // when everything was last read; zero for never
	jitter    float64   // of the time until it is again
	healed    int64     // weir_origin_healed_cells_total then
	uncovered bool      // digests were missing in between
	resets    int64     // resets taken in then
}

const (
	// healedFullEvery and uncoveredFullEvery are how often everything is read while the
	// origin is losing data, and while regions go over from digests to rows that wake, or
	// back: what was quiet before is found by nobody else. resetFullEvery is the same after
	// a reset: what others told of the key since is not in the entry that it has now.
	resetFullEvery     = 10 * time.Second
	healedFullEvery    = 30 * time.Second
	uncoveredFullEvery = time.Minute
)

// full is true when everything is to be read.
func (s *importState) full(set *settings, healed int64) bool {
	since := time.Since(s.fullAt)
	switch {
	case s.fullAt.IsZero(), s.to == 0:
		return true
	case healed != s.healed && since >= healedFullEvery, s.uncovered && since >= uncoveredFullEvery, set.resets.taken != s.resets && since >= resetFullEvery:
		return true
	}
	due := time.Duration(float64(set.tuning.FullInterval.Std()) * (1 + s.jitter))
	return since >= due-set.tuning.FastInterval.Std()/2
}

// importOnce reads what all regions have published about cells that still matter:
// everything the first time, every full interval and when there is reason to believe that
// the origin has lost something; otherwise what changed.
func (l *Limiter) importOnce(ctx context.Context) error {
	l.importing.Lock()
	defer l.importing.Unlock()
	ctx, cancel := context.WithTimeout(ctx, importTimeout)
	defer cancel()
	began := time.Now()
	nowMs := l.nowMs()
	var rows, applied int64
	var answering []*cell.Entry
	set, state := l.settings.Load(), &l.imports
	healed := l.metrics.healed.Load()
	if set.tuning.DigestInterval > 0 && l.elsewhere.regions() > 0 && !l.elsewhere.covered(nowMs) {
		state.uncovered = true
	}
	after := state.to
	full := state.full(set, healed)
	if full {
		after = 0
	}
	cursor, err := l.cfg.Counts.Import(ctx, l.cfg.Region, nowMs, after, func(in store.Imported) {
		rows++
		e, changed, answer := l.merge(in, nowMs)
		if changed {
			applied++
		}
		if answer {
			answering = append(answering, e)
		}
	})
	l.answer(answering)
	if err != nil {
		err = fmt.Errorf("import: %w", err)
	} else {
		state.to = cursor
		if full {
			*state = importState{cursor, time.Now(), set.tuning.Jitter * (2*rand.Float64() - 1), healed, false, set.resets.taken}
		}
	}
	if err == nil || !stopped(ctx) {
		l.metrics.imported(time.Since(began), rows, applied, err, nowMs)
	}
	return err
}

// merge takes one imported cell in: the others' sum by maximum, the own component
// as a lower bound of the regional count. answer is true when this node has accepted
// cost in the cell that it has not published: the cell is shared now, so everyone's
// share of it counts, however small.
func (l *Limiter) merge(in store.Imported, nowMs int64) (e *cell.Entry, changed, answer bool) {
	if in.Cell.Validate() != nil || in.Foreign < 0 || in.Own < 0 {
		return nil, false, false
	}
	current := window.Sequence(nowMs, in.Cell.DurationMs())
	if in.Cell.Sequence != current && in.Cell.Sequence != current-1 {
		return nil, false, false
	}
	reset, ok := l.settings.Load().inForce(&in.Cell)
	if !ok {
		return nil, false, false
	}
	id := l.table.IdentityOfKey(&in.Cell.Key, reset)
	if e = l.table.Get(&id); e == nil {
		var met cell.Contact
		if e, met = l.table.Add(&id, &in.Cell.Key, reset, current, nowMs, &l.table.Created.Imported); met == cell.Untracked {
			return nil, false, false
		}
	}
	set := l.settings.Load()
	from := cell.ForeignCount{Sequence: in.Cell.Sequence, Count: in.Foreign, From: l.metrics.agedIn(in.NewestRegion), CountedAtMs: in.NewestAtMs}
	row := e.MergeRow(&l.metrics.merged, current, from, min(in.Own, window.LimitMax), set.tuning.Floor, set.tuning.Step)
	l.forgot(e, row.AgedOut)
	if !row.Held {
		return nil, false, false
	}
	if in.NewestAtMs > nowMs-regionHeldMs { // a row of a day's window says little of who is there now
		l.elsewhere.heardOf(in.NewestRegion, min(in.NewestAtMs, nowMs))
	}
	return e, row.Changed, in.Foreign > 0 && row.Unshared
}
