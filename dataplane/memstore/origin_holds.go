package memstore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// cellHolds are the reservations of one cell. The cell's added cost has most in it.
type cellHolds struct {
	counted int64 // what all holds count, those that have ended included
	most    int64 // the largest counted so far
	by      map[string]hold
}

// hold is one of them, after its last word.
type hold struct {
	step        int64
	attempts    []uint64 // of step 0, those that are not undone; never changed in place
	cost, after int64
	endsMs      int64 // Unix ms, from which after counts
}

// keptNote is a note, until it is forgotten.
type keptNote struct {
	store.Note
	forgottenMs int64
}

// Hold implements store.Granter.
func (h *Origin) Hold(ctx context.Context, shard int, holds []store.Hold) (reply store.HoldReply, err error) {
	if len(holds) == 0 {
		return reply, nil
	}
	err = h.call(ctx, OpHold, shard, func(s *originShard, epoch store.Epoch) error {
		if err := h.inShard(shard, len(holds), func(i int) *window.Key { return &holds[i].Cell.Key }); err != nil {
			return err
		}
		reply = store.HoldReply{Answers: make([]store.HoldAnswer, len(holds)), Now: h.clock()}
		for i := range holds {
			if err := store.CheckHold(&holds[i]); err != nil {
				reply.Answers[i].Total.Err = err
				continue
			}
			reply.Answers[i] = h.holdLocked(s, &holds[i], reply.Now.UnixMilli())
			reply.Answers[i].Total.Epoch = epoch
		}
		return nil
	})
	return reply, err
}

func (h *originServers) holdLocked(s *originShard, word *store.Hold, nowMs int64) (a store.HoldAnswer) {
	c := word.Cell
	before := s.record(c, nowMs)
	after := before
	a.Late = c.ExpiresAtMs()+(h.grace+jitter(c)).Milliseconds() <= nowMs
	if !a.Late {
		held := s.holdsOf(c, nowMs)
		a = h.wordLocked(s, word, held, after, nowMs)
		grown := max(0, held.counted-held.most)
		held.most += grown
		after.added = capped(after.added, grown)
		if after.region() > 0 {
			after.limit = lowered(after.limit, word.Limit)
		}
		h.put(s, c, before, after, nowMs)
	}
	a.Total.Region, a.Total.Foreign = after.region(), after.foreign
	a.Used, a.UsedBefore = s.used(c, nowMs), s.used(word.Before, nowMs)
	return a
}

// wordLocked applies a word to a cell's holds.
func (h *originServers) wordLocked(s *originShard, word *store.Hold, held *cellHolds, r originRecord,
	nowMs int64) (a store.HoldAnswer) {
	was, known := held.by[word.ID]
	if known && was.over(word, nowMs) {
		was, known = hold{}, false
	}
	switch {
	case word.Undo:
		if known && was.step == 0 && slices.Contains(was.attempts, word.Attempt) {
			if was.attempts = without(was.attempts, word.Attempt); len(was.attempts) > 0 {
				held.by[word.ID] = was
			} else {
				held.counted -= was.cost
				delete(held.by, word.ID)
			}
		}
		return store.HoldAnswer{Granted: true}
	case known && word.Step == 0 && was.step == 0 && was.cost != word.Cost && !word.Again:
		return store.HoldAnswer{Total: store.Total{Err: store.ErrHoldUsed}}
	case known && word.Step == 0:
		alone := len(was.attempts) == 1 && was.attempts[0] == word.Attempt
		if was.step == 0 && !word.Look && !slices.Contains(was.attempts, word.Attempt) {
			if was.attempts = append(slices.Clip(was.attempts), word.Attempt); len(was.attempts) > store.HoldAttemptsMax {
				was.attempts = []uint64{0}
			}
			held.by[word.ID] = was
		}
		return store.HoldAnswer{Granted: true, Late: was.step > 0 || !alone}
	case known && word.Step <= was.step:
		return store.HoldAnswer{Granted: true, Late: true}
	case !known && word.Step > 0 && !word.Again:
		return store.HoldAnswer{Granted: true, Late: true}
	case !known && len(held.by) >= store.HoldsMax:
		return store.HoldAnswer{Total: store.Total{Err: store.ErrHolds}}
	case word.Step == 0 && !word.Force && !s.fits(word, nowMs):
		return store.HoldAnswer{}
	case word.Look:
		return store.HoldAnswer{Granted: true}
	}
	next := hold{step: word.Step, attempts: []uint64{word.Attempt}, cost: word.Cost, after: word.After,
		endsMs: nowMs + word.TTL.Milliseconds()}
	held.counted += next.cost - was.cost
	if word.Again && !known {
		held.most += next.cost
	}
	held.by[word.ID] = next
	held.end(nowMs)
	return store.HoldAnswer{Granted: true}
}

// over is true of a hold that has ended and counts nothing, where another attempt asks for it.
func (h *hold) over(word *store.Hold, nowMs int64) bool {
	return word.Step == 0 && !word.Again && !slices.Contains(h.attempts, word.Attempt) &&
		h.step == 0 && h.cost == 0 && h.endsMs <= nowMs
}

// without is a copy of some attempts, but for one.
func without(attempts []uint64, one uint64) []uint64 {
	return slices.DeleteFunc(slices.Clone(attempts), func(a uint64) bool { return a == one })
}

// fits is the formula of store.Hold.
func (s *originShard) fits(word *store.Hold, nowMs int64) bool {
	durationMs := word.Cell.DurationMs()
	end := window.Start(word.Cell.Sequence+1, durationMs)
	uncovered := min(max(0, end-nowMs), durationMs)
	return window.Fits(s.used(word.Cell, nowMs), s.used(word.Before, nowMs), word.Cost, word.Limit, uncovered, durationMs)
}

// used is what decisions about holds go by.
func (s *originShard) used(c window.Cell, nowMs int64) int64 {
	r := s.record(c, nowMs)
	used := r.region()
	if held := s.holds[c]; held != nil {
		held.end(nowMs)
		used = max(0, used-held.most) + held.counted
	}
	return capped(used, r.foreign)
}

// holdsOf makes a cell's holds if there are none.
func (s *originShard) holdsOf(c window.Cell, nowMs int64) *cellHolds {
	held := s.holds[c]
	if held == nil {
		held = &cellHolds{by: make(map[string]hold)}
		s.holds[c] = held
	}
	held.end(nowMs)
	return held
}

// end ends the holds whose time has come, and forgets those that ended long ago.
func (c *cellHolds) end(nowMs int64) {
	for id, h := range c.by {
		if h.endsMs > nowMs {
			continue
		}
		c.counted -= h.cost - h.after
		if h.cost = h.after; h.endsMs+store.HoldKeptFor.Milliseconds() <= nowMs {
			delete(c.by, id)
			continue
		}
		c.by[id] = h
	}
}

func cloneHolds(holds map[window.Cell]*cellHolds) map[window.Cell]*cellHolds {
	cloned := make(map[window.Cell]*cellHolds, len(holds))
	for c, held := range holds {
		cloned[c] = &cellHolds{held.counted, held.most, maps.Clone(held.by)}
	}
	return cloned
}

// Note implements store.Granter.
func (h *Origin) Note(ctx context.Context, note store.Note) (now store.Note, stored bool, err error) {
	key := store.NoteKey(note.ID)
	if err := store.CheckNote(&note); err != nil {
		return now, false, opError(OpNote, err)
	}
	err = h.call(ctx, OpNote, h.ShardOf(&key), func(s *originShard, epoch store.Epoch) error {
		at := h.clock()
		is := s.notes[note.ID]
		if is.forgottenMs <= at.UnixMilli() {
			is = keptNote{}
		}
		switch {
		case note.Version > 0 && (is.Version == note.Version-1 || note.Again && is.Version < note.Version):
			is = keptNote{note, at.UnixMilli() + note.TTL.Milliseconds()}
			s.notes[note.ID], stored = is, true
		case note.Version > 0 && is.Version == note.Version:
			stored = is.Text == note.Text
		}
		now = is.Note
		now.ID, now.Epoch, now.Now = note.ID, epoch, at
		s.sweepNotes(at.UnixMilli())
		return nil
	})
	if err != nil {
		return store.Note{}, false, err
	}
	return now, stored, nil
}

func (s *originShard) sweepNotes(nowMs int64) {
	if len(s.notes) < s.sweepNotesAt {
		return
	}
	maps.DeleteFunc(s.notes, func(_ string, n keptNote) bool { return n.forgottenMs <= nowMs })
	s.sweepNotesAt = max(sweepMin, 2*len(s.notes))
}

// Hold implements store.Granter.
func (c *Cluster) Hold(ctx context.Context, shard int, holds []store.Hold) (reply store.HoldReply, err error) {
	reply.Answers, reply.Now, err = scatter(c, OpHold, shard, holds,
		func(w *store.Hold) *window.Key { return &w.Cell.Key },
		func(bucket int, holds []store.Hold) ([]store.HoldAnswer, time.Time, error) {
			part, err := c.Origin.Hold(ctx, bucket, holds)
			return part.Answers, part.Now, err
		})
	return reply, err
}
