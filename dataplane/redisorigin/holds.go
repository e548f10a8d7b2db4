package redisorigin

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// Hold implements store.Granter.
func (h *Origin) Hold(ctx context.Context, shard int, holds []store.Hold) (store.HoldReply, error) {
	reply := store.HoldReply{Answers: make([]store.HoldAnswer, len(holds))}
	if len(holds) == 0 {
		return reply, nil
	}
	s, err := h.shard(shard, len(holds), func(i int) *window.Key { return &holds[i].Cell.Key })
	if err != nil {
		return store.HoldReply{}, err
	}
	parts := s.splitKeys(len(holds), func(i int) *window.Key {
		return inBounds(&holds[i].Cell.Key, store.CheckHold(&holds[i]), &reply.Answers[i].Total.Err)
	}, func(names []string, b *bucket, i int) []string { return append(names, b.keys.key(holds[i].Cell)) })
	reply.Now, err = s.ask(ctx, parts,
		func(p *pipeline, part *part) *redis.Cmd { return s.queueHolds(p, part, holds) },
		func(part *part, r *scriptReply) error { return s.holdAnswers(part, r, &reply) })
	if err != nil {
		return store.HoldReply{}, s.failed("hold", len(holds), err)
	}
	return reply, nil
}

// queueHolds adds the command of a part's words.
func (s *shard) queueHolds(p *pipeline, part *part, holds []store.Hold) *redis.Cmd {
	keys := make([]string, 0, 6*len(part.places))
	args := []any{store.HoldKeptFor.Milliseconds(), store.HoldsMax, store.HoldAttemptsMax}
	for i, place := range part.places {
		h := &holds[place]
		before := part.bucket.keys.key(h.Before)
		keys = append(keys, part.keys[i], before, part.heldKey("holds", part.keys[i]), part.heldKey("ends", part.keys[i]),
			part.heldKey("holds", before), part.heldKey("ends", before))
		over := window.Start(h.Cell.Sequence+1, h.Cell.DurationMs())
		args = append(args, h.ID, h.Step, strconv.FormatUint(h.Attempt, 10), h.Undo, h.Cost, h.After, h.TTL.Milliseconds(),
			bounded(h.Limit), h.Force, h.Again, h.Look, over, h.Cell.DurationMs(), s.expiresAtMs(h.Cell, part.keys[i]))
	}
	return p.eval(part.bucket, holdScript, []string{part.changesKey}, keys, args)
}

// heldKey names what is kept beside a cell, by the cell's key.
func (b *bucket) heldKey(what, cell string) string {
	return b.heldHead + what + strings.TrimPrefix(cell, strings.TrimSuffix(b.heldHead, ":"))
}

// holdAnswers reads a part's answers into their places.
func (s *shard) holdAnswers(part *part, r *scriptReply, reply *store.HoldReply) error {
	problem := ""
	if n := len(r.rest); n > 0 {
		problem, _ = r.rest[n-1].(string)
		r.rest = r.rest[:n-1]
	}
	for i, place := range part.places {
		a := store.HoldAnswer{Granted: r.int() == 1, Late: r.int() == 1}
		refused := r.int()
		a.Used, a.UsedBefore = r.int(), r.int()
		if a.Total = r.total(part.keys[i], problem); a.Total.Err == nil {
			a.Total.Err = []error{nil, store.ErrHolds, store.ErrHoldUsed}[min(max(0, refused), 2)]
		}
		s.noteJunk(a.Total.Err)
		reply.Answers[place] = a
	}
	return r.end()
}

// Note implements store.Granter.
func (h *Origin) Note(ctx context.Context, note store.Note) (now store.Note, stored bool, err error) {
	if err := store.CheckNote(&note); err != nil {
		return now, false, fmt.Errorf("redisorigin: %w", err)
	}
	key := store.NoteKey(note.ID)
	s := h.shards[h.ShardOf(&key)]
	b := s.bucketOf(&key)
	p := s.pipeline(ctx)
	name := b.heldHead + "note:" + string(appendEscaped(nil, note.ID))
	cmd := p.eval(b, noteScript, []string{name}, nil, []any{note.Version, note.Text, note.TTL.Milliseconds(), note.Again})
	p.exec()
	r, err := p.reply(b, cmd)
	if err != nil {
		return now, false, s.failed("note", 0, err)
	}
	stored = r.int() == 1
	now = store.Note{ID: note.ID, Version: r.int(), Text: r.text(), Epoch: r.epoch, Now: r.now}
	if err := r.end(); err != nil {
		return store.Note{}, false, s.failed("note", 0, err)
	}
	return now, stored, nil
}
