package held

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

const (
	// Max is how many reservations that have not ended a node has made, or changed.
	Max = 100_000

	// BytesMax is how many bytes they take, about.
	BytesMax = 256 << 20

	noteKept  = 10 * time.Minute // after a reservation's end: who settles later is told so
	triesMost = 10               // of those that change it at once one is next
	tellMax   = 1000             // reservations that a turn tells an origin of
	knownFor  = 10 * time.Second // before it is forgotten a hold is taken to be known
)

var (
	// ErrNone is returned of an id that nothing is known of.
	ErrNone = errors.New("dataplane: no reservation has this id")

	// ErrUsed is returned of an id under which something else is reserved.
	ErrUsed = errors.New("dataplane: the id is that of another reservation")

	// ErrOver is ErrUsed where the same was reserved, and was settled or has ended.
	ErrOver error = overError{}

	// ErrMany is returned when there is no room for a reservation.
	ErrMany = errors.New("dataplane: too many reservations")

	// ErrFull is ErrMany of a node.
	ErrFull = fmt.Errorf("%w: this node has %d, or %d bytes of them", ErrMany, Max, BytesMax)
)

type overError struct{}

func (overError) Error() string {
	return "dataplane: the reservation of this id was settled, or has ended"
}
func (overError) Unwrap() error { return ErrUsed }

// Origin is where reservations are held.
type Origin interface {
	ShardOf(key *window.Key) int
	store.Reservations
}

// There are the reservations at an origin.
type There struct {
	Origin Origin // nil: there are none

	// Call makes a call to a shard that may be repeated, and looks at what it is answered.
	Call func(ctx context.Context, shard int, what What, items int, call func(context.Context) (store.Reply, error)) error

	// Heard merges the totals that came with words.
	Heard func(shard int, words []store.Hold, totals []store.Total)

	// NowMs is the origin's clock, in Unix ms.
	NowMs func() int64

	Stats Stats

	mu    sync.Mutex
	kept  map[string]*kept
	room  room // that they take
	heard map[window.Cell]heard
	lost  bool // some part of the origin has lost what it held
}

// What is a kind of call.
type What int

// Kinds of calls.
const (
	Hold What = iota
	Note
)

// kept is what this node has said last of a reservation.
type kept struct {
	note    store.Note
	record  *Record
	bytes   int
	freshMs int64 // when this node stored the version, in Unix ms; 0 if it found it stored
	unsaid  bool  // the origin has not heard what it means for the holds
	lost    bool  // the origin may have lost the reservation
}

// fresh is true as long as the origin knows of the hold that a version has settled.
func (k *kept) fresh(nowMs int64) bool {
	return nowMs < k.freshMs+(store.HoldKeptFor-knownFor).Milliseconds()
}

// Full is true when there is no room for another reservation.
func (s *There) Full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.full() && s.room.sweeps(s.NowMs()) { // what is settled can go: an origin that loses it counts it as it was
		for id, k := range s.kept {
			if k.record.Settled && !k.unsaid {
				s.forget(id, k)
			}
		}
	}
	return s.full()
}

func (s *There) full() bool { return s.room.full(len(s.kept)) }

func (s *There) forget(id string, k *kept) {
	delete(s.kept, id)
	s.room.bytes -= k.bytes
}

// Reserve requests the holds of a reservation from the origin. It calls judge with the origin's
// answers; judge may mark items as shadowed. If judge refuses or returns an error, nothing is held.
// Other errors come from the origin. If the origin has just refused as much, Reserve calls judge
// with asked false, and at most asks the origin for a reservation with this ID, because the request
// may be a retry.
//
// It returns the reservation. If one with this ID already exists for the same request, it returns
// that one.
func (s *There) Reserve(ctx context.Context, id string, r *Record,
	judge func(answers []store.HoldAnswer, asked bool) (ok bool, err error)) (is *Record, ok bool, err error) {
	made := false
	defer func() { s.Stats.reserved(made, ok, err) }()
	words := r.Words(id, 1, r.MadeMs)
	if refused := s.refusal(id, words); refused != nil {
		if ok, err = judge(refused, false); err != nil {
			return r, false, err
		} else if !ok {
			return s.existing(ctx, id, r, refused, judge)
		}
	}
	if several(words) { // what is held of one of them counts, also if another is refused
		answers, err := s.look(ctx, words)
		if err != nil {
			return r, false, Away{err}
		}
		if ok, err := judge(answers, true); err != nil {
			return r, false, err
		} else if !ok {
			s.refused(words, answers)
			return s.existing(ctx, id, r, answers, judge)
		}
	}
	answers, err := s.say(ctx, words)
	if err != nil {
		s.undo(ctx, words)
		return r, false, Away{err}
	}
	if ok, err = judge(answers, true); !ok || err != nil {
		s.undo(ctx, words)
		if err == nil {
			s.refused(words, answers)
			return s.existing(ctx, id, r, answers, judge)
		}
		return r, false, err
	}
	note := store.Note{ID: id, Version: 1, Text: r.Text(), TTL: s.keepFor(r)}
	now, stored, err := s.note(ctx, note)
	switch {
	case err != nil:
		s.undo(ctx, words)
		return r, false, Away{err}
	case stored:
		made = true
		s.keep(note, r, s.NowMs())
		s.renew(ctx, id, answers)
		return r, true, nil
	}
	was, err := r.madeBefore(now)
	if err != nil {
		s.undo(ctx, words) // of a reservation that is over, too: the origin may have forgotten the holds
		return r, false, err
	}
	s.undo(ctx, was.unlike(words))
	return was, true, nil
}

// existing is called when holds were refused. It returns the reservation with this ID if there is
// one for the same request, made by another node or in an earlier cell. That takes one call to the
// origin, or none if the ID was drawn.
func (s *There) existing(ctx context.Context, id string, r *Record, answers []store.HoldAnswer,
	judge func([]store.HoldAnswer, bool) (bool, error)) (is *Record, ok bool, err error) {
	if r.New {
		return r, false, nil
	}
	now, _, err := s.note(ctx, store.Note{ID: id})
	if known := err == nil && now.Version > 0; !known {
		return r, false, nil
	}
	was, err := r.madeBefore(now)
	if err != nil {
		return r, false, err
	}
	for i := range answers {
		answers[i].Granted = true
	}
	ok, err = judge(answers, true)
	return was, ok, err
}

// madeBefore is the reservation that a note has, if it is what r asks for and is open.
func (r *Record) madeBefore(note store.Note) (*Record, error) {
	was, err := Parse(note.Text)
	switch {
	case err != nil || !was.Same(r):
		return nil, ErrUsed
	case !was.Open(note.Now.UnixMilli()):
		return nil, ErrOver
	}
	return was, nil
}

// renew has holds that another attempt asked for, whose maker has died over the note, end with this reservation.
func (s *There) renew(ctx context.Context, id string, answers []store.HoldAnswer) {
	if !slices.ContainsFunc(answers, func(a store.HoldAnswer) bool { return a.Late && a.Granted }) {
		return
	}
	_, _, _ = s.Change(context.WithoutCancel(ctx), id, func(r *Record, _ int64) (*Record, error) {
		next := *r
		return &next, nil
	})
}

// Away says that the origin has not answered.
type Away struct{ error }

// Unwrap implements errors.Unwrap.
func (a Away) Unwrap() error { return a.error }

// Change stores what by makes of a reservation, and says what follows for its holds. A node that finds it settled
// says that again: the one that stored it may have died before. late is true if the reservation was settled or had
// ended.
func (s *There) Change(ctx context.Context, id string, by Change) (r *Record, late bool, err error) {
	note := store.Note{ID: id}
	for range triesMost {
		now, stored, err := s.note(ctx, note)
		switch {
		case err != nil:
			s.Stats.NoReply.Add(1)
			return nil, false, Away{err}
		case now.Version == 0:
			s.Stats.Unknown.Add(1)
			return nil, false, ErrNone
		}
		r, err := Parse(now.Text)
		if err != nil {
			return nil, false, err
		}
		if late := !r.Open(now.Now.UnixMilli()); stored || late {
			s.Stats.changed(r, stored)
			if r.Settled || stored || !late { // what is stored counts, also if it ended meanwhile
				s.follow(ctx, now, r, stored)
			}
			return r, late && !stored, nil
		}
		next, err := by(r, now.Now.UnixMilli())
		if err != nil || next == nil {
			return r, false, err
		}
		note = store.Note{ID: id, Version: now.Version + 1, Text: next.Text(), TTL: s.keepFor(next)}
	}
	return nil, false, fmt.Errorf("dataplane: reservation %q is changed by too many at once", id)
}

// follow says what a stored version means for the holds; if the origin does not hear it, or has lost them, Send does.
// Where it was stored before, the origin may have heard of it, and have forgotten the holds since.
func (s *There) follow(ctx context.Context, note store.Note, r *Record, stored bool) {
	nowMs, freshMs := s.NowMs(), int64(0)
	if stored {
		freshMs = nowMs
	}
	k := s.keep(note, r, freshMs)
	answers, err := s.say(ctx, r.Words(note.ID, note.Version, nowMs))
	late := stored && slices.ContainsFunc(answers, func(a store.HoldAnswer) bool { return a.Late })
	if (err != nil || late) && k != nil {
		s.mu.Lock()
		k.unsaid = true
		s.mu.Unlock()
	}
}

// keep remembers a version of a reservation until it ends. Without room, what the origin loses of it is lost.
func (s *There) keep(note store.Note, r *Record, freshMs int64) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.kept[note.ID]
	switch {
	case was == nil && s.full():
		return nil
	case was != nil && was.note.Version > note.Version:
		return was
	case s.kept == nil:
		s.kept = make(map[string]*kept)
	}
	k := &kept{note: note, record: r, bytes: r.bytes(), freshMs: freshMs}
	if s.room.bytes += k.bytes; was != nil {
		s.room.bytes -= was.bytes
	}
	s.kept[note.ID] = k
	return k
}

// Lose has the next Send tell everything.
func (s *There) Lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = true
}

// Send tells the origin what it has lost, or not heard. It is called each second. What a shard does not take now is
// told in a later turn.
func (s *There) Send(ctx context.Context) error {
	var first error
	away := make(map[int]bool)
	for _, k := range s.untold() {
		key := store.NoteKey(k.note.ID)
		shard := s.Origin.ShardOf(&key)
		if away[shard] {
			continue
		}
		if err := s.tell(ctx, k); err != nil {
			away[shard], first = true, cmp.Or(first, err)
			continue
		}
		s.mu.Lock()
		k.unsaid, k.lost = false, false
		s.mu.Unlock()
	}
	return first
}

func (s *There) tell(ctx context.Context, k *kept) error {
	note := k.note
	note.Again, note.TTL = true, s.keepFor(k.record)
	now, stored, err := s.note(ctx, note)
	switch {
	case err != nil:
		return err
	case !stored:
		return s.add(ctx, now, k.record)
	}
	s.mu.Lock()
	unsaid, lost := k.unsaid, k.lost
	s.mu.Unlock()
	if k.record.Settled && !unsaid {
		return nil // the totals that nodes restore have it, and a part that has lost nothing may have forgotten its holds
	}
	nowMs := s.NowMs()
	words, again := k.record.Words(note.ID, note.Version, nowMs), lost || !k.record.Settled || k.fresh(nowMs)
	for i := range words {
		words[i].Again, words[i].Force = again, again
	}
	_, err = s.say(ctx, words)
	return err
}

// add says what this node was told of a reservation that goes on without it: an emptied origin may be told of an older
// version first, and takes changes to that.
func (s *There) add(ctx context.Context, now store.Note, was *Record) error {
	costs := make([]int64, len(was.Items))
	for i := range was.Items {
		costs[i] = was.Items[i].Spent
	}
	lacking := func(r *Record, _ int64) (*Record, error) {
		if !r.Same(was) {
			return nil, nil
		}
		return r.Spend(costs, was.Settled), nil
	}
	r, err := Parse(now.Text)
	if err != nil || !r.Open(s.NowMs()) {
		return err
	}
	if next, _ := lacking(r, 0); next == nil {
		return nil
	}
	_, _, err = s.Change(ctx, now.ID, lacking)
	return err
}

// untold are reservations to tell of; those that have ended are forgotten.
func (s *There) untold() (some []*kept) {
	nowMs := s.NowMs()
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, k := range s.kept {
		k.lost = k.lost || s.lost
		tell := k.unsaid || k.lost
		switch over := nowMs - k.record.EndsMs; {
		case over >= 0 && !tell, over >= store.HoldKeptFor.Milliseconds():
			s.forget(id, k)
		case tell && len(some) < tellMax:
			some = append(some, k)
		}
	}
	s.lost = false
	return some
}

// Each calls f with the reservations that are open, as far as this node has made or changed them.
func (s *There) Each(nowMs int64, f func(id string, r *Record)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, k := range s.kept {
		if k.record.Open(nowMs) {
			f(id, k.record)
		}
	}
}

func (s *There) keepFor(r *Record) time.Duration {
	return time.Duration(r.left(s.NowMs()))*time.Millisecond + noteKept
}

func (s *There) note(ctx context.Context, note store.Note) (now store.Note, stored bool, err error) {
	key := store.NoteKey(note.ID)
	err = s.Call(ctx, s.Origin.ShardOf(&key), Note, 1, func(ctx context.Context) (_ store.Reply, err error) {
		now, stored, err = s.Origin.Note(ctx, note)
		return store.Reply{Now: now.Now}, err
	})
	return now, stored, err
}

// several is true of words about more than one cell.
func several(words []store.Hold) bool {
	return slices.ContainsFunc(words, func(w store.Hold) bool { return w.Cell != words[0].Cell })
}

// look asks what would be answered to words.
func (s *There) look(ctx context.Context, words []store.Hold) ([]store.HoldAnswer, error) {
	looks := slices.Clone(words)
	for i := range looks {
		looks[i].Look = true
	}
	answers, err := s.say(ctx, looks)
	for i := range answers {
		if a := &answers[i]; a.Granted && !a.Late {
			a.Used += words[i].Cost
		}
	}
	return answers, err
}

// undo takes back words that asked for holds, as far as the origin hears it; the rest ends by itself.
func (s *There) undo(ctx context.Context, words []store.Hold) {
	if len(words) == 0 {
		return
	}
	undone := slices.Clone(words)
	for i := range undone {
		undone[i].Undo = true
	}
	_, _ = s.say(context.WithoutCancel(ctx), undone)
}

// say says words about holds, in one call to each shard, and returns the answers in their order.
func (s *There) say(ctx context.Context, words []store.Hold) ([]store.HoldAnswer, error) {
	answers := make([]store.HoldAnswer, len(words))
	places := make(map[int][]int, 1)
	for i := range words {
		shard := s.Origin.ShardOf(&words[i].Cell.Key)
		places[shard] = append(places[shard], i)
	}
	for shard, at := range places {
		mine := make([]store.Hold, len(at))
		for n, i := range at {
			mine[n] = words[i]
		}
		totals := make([]store.Total, len(at))
		err := s.Call(ctx, shard, Hold, len(mine), func(ctx context.Context) (store.Reply, error) {
			reply, err := s.Origin.Hold(ctx, shard, mine)
			if err != nil || len(reply.Answers) != len(mine) {
				return store.Reply{}, cmp.Or(err, errShortAnswer)
			}
			for n := range reply.Answers {
				answers[at[n]], totals[n] = reply.Answers[n], reply.Answers[n].Total
			}
			return store.Reply{Totals: totals, Now: reply.Now}, nil
		})
		if err != nil {
			return nil, err
		}
		s.Heard(shard, mine, totals)
	}
	s.unhear(words)
	return answers, nil
}

var errShortAnswer = errors.New("dataplane: the origin has answered fewer words than it was sent")
