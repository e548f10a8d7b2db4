package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/internal/cell"
	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// A reset drops the counts of an identifier ("let this customer back in"). It is a row of the settings, with the
// identifier, the time, and a generation: a number that is part of its cells' names. A node that reads it decides about
// the identifier's keys by new entries, which begin empty. Nothing is deleted anywhere; the counts of before are under
// names that no node reads:
//
//	cell of the key            before       after reset g, made in cell 7
//	…, 6, 7                    key:7        key:7 of generation g
//	8, 9, …                    key:8        key:8
//
// A node may not have read the reset yet, or never will because its build is older. It goes on adding to cells 6 and 7
// of generation 0, which no other node reads, and shares cell 8 with all other nodes again. Cell 8 holds nothing from
// before the reset.
//
// An entry from before the reset stays until its window ends, and sends its remaining cost to the origin, because other
// nodes need its cost of cell 8. A Reservation made before the reset is settled there.

// Keep as Rule.Limit keeps that of the request.
const Keep = -1

type resetName struct{ workspace, namespace, identifier string }

// resets are the resets that a node has read.
type resets struct {
	known  map[resetName]knownReset
	atMs   int64 // of the newest
	overMs int64 // latest expiry of the resets that were skipped as expired; 0: none
}

type knownReset struct {
	window.Reset
	expiresAtMs int64
}

// setResets applies resets to settings that are otherwise complete. For each identifier the latest reset holds: a row
// that is older than the reset in force, or missing, changes nothing until that reset expires. So rows may be read
// twice, late, or from a restored store. Times order resets, and generations do not: a store that was restored to
// before a reset may give the same generation to a later reset.
func (s *Settings) setResets(rows []store.ResetRow, held map[resetName]bool, last *Settings, nowMs int64) error {
	s.resets.known = make(map[resetName]knownReset, len(rows))
	for name, r := range last.resets.known {
		if r.expiresAtMs > nowMs || held[name] {
			s.resets.known[name] = r
		}
	}
	var problems []error
	for i := range rows {
		if err := s.resets.take(&rows[i], nowMs); err != nil {
			problems = append(problems, err)
		}
	}
	for name, r := range s.resets.known {
		s.resets.atMs = max(s.resets.atMs, r.AtMs)
		s.spaces.add(spaceName{name.workspace, name.namespace}).reset(name.identifier, r.Reset)
	}
	return joinFirst(problems, 5)
}

// heldResets returns the resets that have expired while this node still counts by them: the key's entry has their
// identity, and without them another entry would begin empty in the same window. They stay in force on this node until
// that window is over. The key's cells have their own names again, so other nodes see no difference.
func (r *Rules) heldResets(last *Settings, nowMs int64) map[resetName]bool {
	expired := false
	for _, known := range last.resets.known {
		expired = expired || known.expiresAtMs <= nowMs
	}
	if !expired {
		return nil
	}
	held := make(map[resetName]bool)
	r.cfg.Walk(func(e *cell.Entry) {
		f := e.Names().Family()
		if f.Reset.Generation == 0 || e.Expired(nowMs) {
			return
		}
		name := resetName{f.Workspace, f.Namespace, e.Names().Identifier()}
		if last.resets.known[name].Reset == f.Reset {
			held[name] = true
		}
	})
	return held
}

func (s *resets) take(row *store.ResetRow, nowMs int64) error {
	if err := validateReset(row); err != nil {
		return fmt.Errorf("reset of %q in %q/%q: %w", row.Identifier, row.Workspace, row.Namespace, err)
	}
	name := resetName{row.Workspace, row.Namespace, row.Identifier}
	was, ok := s.known[name]
	switch {
	case row.ExpiresAtMs <= nowMs:
		s.overMs = max(s.overMs, row.ExpiresAtMs)
		return nil
	case ok && was.AtMs >= row.AtMs:
		return nil
	case !ok && len(s.known) >= store.ResetsMax:
		return fmt.Errorf("%w: there are more than %d resets", window.ErrInvalid, store.ResetsMax)
	}
	s.known[name] = knownReset{window.Reset{Generation: window.Generation(row.Generation), AtMs: row.AtMs},
		row.ExpiresAtMs}
	return nil
}

func validateReset(row *store.ResetRow) error {
	probe := window.Key{Workspace: row.Workspace, Namespace: row.Namespace, Identifier: row.Identifier,
		Duration: time.Second}
	switch {
	case row.Generation < 1 || row.Generation > int64(window.GenerationMax):
		return fmt.Errorf("%w: generation is %d (1 to %d)", window.ErrInvalid, row.Generation, window.GenerationMax)
	case row.AtMs < 0:
		return fmt.Errorf("%w: it was made at %d ms", window.ErrInvalid, row.AtMs)
	}
	return probe.Validate()
}

// reset gives an identifier its own rule: the rule that applies to it otherwise, with the reset.
func (sp *space) reset(identifier string, r window.Reset) {
	o := sp.exact[identifier]
	switch {
	case o != nil:
	case sp.match(identifier) != nil:
		o = new(*sp.match(identifier))
	default:
		o = new(sp.Rule)
	}
	o.Reset = &r
	sp.exact[strings.Clone(identifier)] = o
}

// ResetOf returns the reset in force for a key, or nil.
func (s *Settings) ResetOf(k *window.Key) *window.Reset {
	if len(s.resets.known) == 0 {
		return nil
	}
	if o := s.spaces[spaceName{k.Workspace, k.Namespace}]; o != nil && o.exact[k.Identifier] != nil {
		return o.exact[k.Identifier].Reset
	}
	return nil
}

// ResetOfCell returns the reset of a cell's key, for a cell as other nodes name it. ok is false if the cell counts no
// more, or not yet, because its generation is not the generation that this node uses.
func (s *Settings) ResetOfCell(c *window.Cell) (reset *window.Reset, ok bool) {
	if reset = s.ResetOf(&c.Key); reset == nil {
		return nil, c.Generation == 0
	}
	return reset, c.Generation == reset.GenerationOf(c.Sequence, c.DurationMs())
}

// Superseded reports whether another entry stands for the key, because this entry is from before a reset of the key, or
// from before the reset's expiry.
func (s *Settings) Superseded(n *cell.Names) bool {
	f := n.Family()
	if len(s.resets.known) == 0 {
		return f.Reset.Generation != 0
	}
	reset := s.ResetOf(&window.Key{Workspace: f.Workspace, Namespace: f.Namespace, Identifier: n.Identifier()})
	if reset == nil {
		return f.Reset.Generation != 0
	}
	return *reset != f.Reset
}

// Resets returns the number of resets in force.
func (s *Settings) Resets() int { return len(s.resets.known) }

// ResetAtMs returns when the newest of them was made, or 0.
func (s *Settings) ResetAtMs() int64 { return s.resets.atMs }
