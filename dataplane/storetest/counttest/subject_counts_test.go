package counttest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
	"github.com/weirhq/weir/shared/window"
)

// countsSubject is the simplest CountStore that keeps the contract, except for a single given fault.
type countsSubject struct {
	fault string

	mu         sync.Mutex
	components []countsComponent
	index      map[string]int // identity → place in components
	tunings    []tuningRow
	namespaces []store.NamespaceRow
	overrides  []store.OverrideRow
	resets     []store.ResetRow
	beats      []heartbeat.Heartbeat
}

type countsComponent struct {
	region string
	row    *store.Count
}

type tuningRow struct {
	region   string
	version  int64
	document []byte
}

// ended is the check with which every method begins.
func (s *countsSubject) ended(ctx context.Context) error {
	if s.fault == "never looks at ctx" {
		return nil
	}
	if s.fault == "hides why ctx ended" && ctx.Err() != nil {
		return errors.New("went wrong")
	}
	return ctx.Err()
}

func (s *countsSubject) Publish(ctx context.Context, region string, counts []store.Count) error {
	if err := s.ended(ctx); err != nil {
		return err
	}
	if len(counts) == 0 && s.fault == "no rows are an error" {
		return errors.New("nothing to do")
	}
	if err := s.misuse(counts); err != nil {
		return err
	}
	for i, c := range counts {
		if c.Cell.Validate() != nil && s.fault != "takes names of any length" || c.Count < 0 && s.fault != "takes negative counts" ||
			c.Count > store.CountMax && s.fault != "takes counts of any size" {
			switch s.fault {
			case "stores the rows beside a refused one":
				s.store(region, slices.Delete(slices.Clone(counts), i, i+1))
			case "refuses without saying so":
				return errors.New("refused")
			}
			return fmt.Errorf("%w: row %d", store.ErrRefused, i)
		}
	}
	s.store(region, counts)
	return nil
}

func (s *countsSubject) misuse(counts []store.Count) error {
	if len(counts) > store.PublishRowsMax && s.fault != "takes too many rows" {
		return errors.New("too many rows")
	}
	for i := 1; i < len(counts); i++ {
		order := counts[i-1].Cell.Compare(counts[i].Cell)
		if order > 0 && s.fault != "takes unsorted rows" || order == 0 && s.fault != "takes duplicates" {
			if s.fault == "blames a row for their order" {
				return fmt.Errorf("%w: row %d", store.ErrRefused, i)
			}
			return errors.New("out of order")
		}
	}
	return nil
}

func (s *countsSubject) store(region string, counts []store.Count) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == "stores the first row only" && len(counts) > 1 {
		counts = counts[:1]
	}
	before := s.readFirst(region, counts)
	for i := range counts {
		id := identity(s.fault, counts[i].Cell) + "|" + fold(s.fault, "regions", region)
		place, ok := s.index[id]
		if !ok {
			row := counts[i]
			s.index[id] = len(s.components)
			s.components = append(s.components, countsComponent{region, &row})
			if s.fault == "keeps a reference to the rows" {
				s.components[len(s.components)-1].row = &counts[i]
			}
			continue
		}
		row := s.components[place].row
		switch stored := row.Count; s.fault {
		case "the last writer wins":
			row.Count = counts[i].Count
		case "adds up publications":
			row.Count += counts[i].Count
		case "never raises":
		case "loses updates":
			row.Count = max(before[i], counts[i].Count)
		default:
			row.Count = max(stored, counts[i].Count)
		}
	}
}

// readFirst acts as a store that selects before it updates.
func (s *countsSubject) readFirst(region string, counts []store.Count) []int64 {
	if s.fault != "loses updates" {
		return nil
	}
	before := make([]int64, len(counts))
	for i, c := range counts {
		if place, ok := s.index[identity(s.fault, c.Cell)+"|"+region]; ok {
			before[i] = s.components[place].row.Count
		}
	}
	s.mu.Unlock()
	for range 100 {
		runtime.Gosched()
	}
	s.mu.Lock()
	return before
}

func (s *countsSubject) Import(ctx context.Context, nowMs int64, yield func(string, store.Count)) error {
	if err := s.ended(ctx); err != nil {
		return err
	}
	for n, c := range s.alive(nowMs) {
		row, ended := *c.row, ctx.Err()
		switch {
		case ended == nil:
		case s.fault == "yields half before an error":
			row.Count /= 2
		case s.fault == "stops without an error":
			return error(nil)
		case n > 0 && s.fault != "never looks at ctx":
			return ended
		}
		switch s.fault {
		case "yields a component twice":
			yield(c.region, row)
		case "forgets whose a component is":
			c.region = "eu"
		case "reads floats":
			row.Count = int64(float32(row.Count))
		}
		yield(c.region, row)
	}
	return nil
}

func (s *countsSubject) alive(nowMs int64) (alive []countsComponent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == "yields what expires at nowMs" {
		nowMs--
	}
	places := make(map[window.Cell]int) // in alive
	for _, c := range s.components {
		row := *c.row
		if row.Cell.ExpiresAtMs() <= nowMs && s.fault != "yields expired cells" {
			continue
		}
		if store.Ahead(&row.Cell, nowMs) && s.fault != "yields counts from before their time" {
			continue
		}
		place, ok := places[row.Cell]
		switch {
		case ok && s.fault == "yields one region of each cell":
		case ok && s.fault == "adds up regions":
			alive[place].row.Count += row.Count
		default:
			places[row.Cell] = len(alive)
			alive = append(alive, countsComponent{c.region, &row})
		}
	}
	return alive
}

func (s *countsSubject) Settings(ctx context.Context, region string) (store.SettingsRows, error) {
	if err := s.ended(ctx); err != nil {
		return store.SettingsRows{}, err
	}
	out := store.SettingsRows{Namespaces: slices.Clone(s.namespaces), Overrides: slices.Clone(s.overrides), Resets: slices.Clone(s.resets)}
	for _, b := range s.beats {
		if b.Region == region && (!b.Stopped || s.fault == "a stopped node stays") {
			out.NodesLive++
		}
	}
	if s.fault == "documents are never nil" {
		out.TuningDocument = []byte{}
	}
	best := tuningRow{}
	for _, r := range s.tunings {
		mine, fleet := fold(s.fault, "regions", r.region) == fold(s.fault, "regions", region), r.region == ""
		if !mine && !fleet || fleet && s.fault == "the fleet's tuning is not seen" {
			continue
		}
		better := r.version > best.version
		if s.fault == "the oldest tuning" {
			better = best.version == 0 || r.version < best.version
		}
		if best.version > 0 && s.fault != "the newest of region and fleet" && best.region != r.region {
			better = mine
		}
		if better {
			best = r
			out.TuningVersion, out.TuningDocument = r.version, r.document
		}
	}
	for i := range out.Namespaces {
		out.Namespaces[i].Shadow = out.Namespaces[i].Shadow && s.fault != "shadow mode is lost"
		if s.fault == "a namespace's mode is lost" {
			out.Namespaces[i].Mode = "exact"
		}
		out.Namespaces[i].Namespace = fold(s.fault, "settings", out.Namespaces[i].Namespace)
	}
	for i := range out.Overrides {
		out.Overrides[i].Pattern = fold(s.fault, "settings", out.Overrides[i].Pattern)
		if s.fault == "an override's duration is lost" {
			out.Overrides[i].DurationMs = 0
		}
		if s.fault == "an override's candidate is lost" {
			out.Overrides[i].Candidate = 0
		}
		out.Overrides[i].Shadow = out.Overrides[i].Shadow && s.fault != "an override's shadow mode is lost"
	}
	if s.fault == "a reset's generation is lost" {
		for i := range out.Resets {
			out.Resets[i].Generation = 1
		}
	}
	return out, nil
}

func (s *countsSubject) Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error {
	if err := s.ended(ctx); err != nil {
		return err
	}
	if s.fault == "the first heartbeat of several alone" {
		beats = beats[:min(len(beats), 1)]
	}
	for _, b := range beats {
		s.beat(b)
	}
	return nil
}

func (s *countsSubject) beat(beat heartbeat.Heartbeat) {
	if s.fault == "a health figure is lost" {
		beat.Health.SettingsProblem = ""
	}
	at := slices.IndexFunc(s.beats, func(b heartbeat.Heartbeat) bool {
		return fold(s.fault, "nodes", b.NodeID) == fold(s.fault, "nodes", beat.NodeID)
	})
	if at >= 0 && s.beats[at].Stopped && beat.Precedes(&s.beats[at]) && s.fault != "an earlier word after the last" {
		return
	}
	if at >= 0 && beat.Top == "" && s.fault != "top keys are lost" {
		beat.Top = s.beats[at].Top
	}
	switch {
	case at < 0 || s.fault == "heartbeats pile up":
		s.beats = append(s.beats, beat)
	case s.fault != "the first heartbeat stays":
		s.beats[at] = beat
	}
}
