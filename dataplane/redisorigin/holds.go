package redisorigin

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// States of a script's answer to a call about reservations.
const (
	holdApplied = iota
	holdBehind
	holdRefused
	holdAnotherRecord
	holdEmptied
)

// Kinds of a record in the script's arguments.
const (
	recordNone = iota
	recordNew
	recordRestored
	recordChange
	recordWithdraw
)

// GroupOf implements store.Reservations. The groups of a partition follow the groups of the partition before it.
func (h *Origin) GroupOf(key *window.Key) int {
	shard := h.ShardOf(key)
	group := h.shards[shard].bucketOf(key).n
	for _, s := range h.shards[:shard] {
		group += len(s.buckets)
	}
	return group
}

// Hold implements store.Reservations. It sends a single command.
func (h *Origin) Hold(ctx context.Context, call store.HoldCall) (store.HoldReply, error) {
	if err := h.checkHoldCall(&call); err != nil {
		return store.HoldReply{}, fmt.Errorf("redisorigin: %w", err)
	}
	s := h.shards[h.ShardOf(&call.Group)]
	c := holdCall{s: s, bucket: s.bucketOf(&call.Group), places: make(map[string]int)}
	args := c.args(&call)
	p := s.pipeline(ctx)
	cmd := p.eval(c.bucket, holdScript, c.heads(&call), c.cells, args)
	p.exec()
	r, err := p.reply(c.bucket, cmd)
	if err != nil {
		return store.HoldReply{}, s.failed("hold", len(call.Holds), err)
	}
	reply := c.answer(&call, r)
	if err := r.end(); err != nil {
		return store.HoldReply{}, s.failed("hold", len(call.Holds), err)
	}
	return reply, nil
}

// checkHoldCall also reports keys of several groups.
func (h *Origin) checkHoldCall(call *store.HoldCall) error {
	if err := store.CheckHoldCall(call); err != nil {
		return err
	}
	keys := make([]window.Key, 0, 1+2*len(call.Holds))
	if call.Record != nil {
		keys = append(keys, store.RecordKey(call.Record.ID))
	}
	for i := range call.Holds {
		keys = append(keys, call.Holds[i].Cell.Key)
		if hasBefore(&call.Holds[i]) {
			keys = append(keys, call.Holds[i].Before.Key)
		}
	}
	group := h.GroupOf(&call.Group)
	for i := range keys {
		if n := h.GroupOf(&keys[i]); n != group {
			return fmt.Errorf("%w: %v is in group %d, and the call is about group %d", window.ErrInvalid, keys[i], n, group)
		}
	}
	return nil
}

func hasBefore(h *store.Hold) bool { return h.As == store.HoldNew && h.Before != (window.Cell{}) }

// holdCall builds the keys and arguments of a call: each of its cells is named once.
type holdCall struct {
	s *shard
	*bucket
	places map[string]int // of the cells, by their keys; the first is 1
	cells  []string       // four keys for each cell
	ends   []any          // three arguments for each cell
}

// place returns the place of a cell among the call's cells.
func (c *holdCall) place(cell window.Cell) int {
	key := c.keys.key(cell)
	if n, ok := c.places[key]; ok {
		return n
	}
	c.places[key] = len(c.places) + 1
	c.cells = append(c.cells, key, c.heldKey("holds", key), c.heldKey("open", key), c.heldKey("ended", key))
	c.ends = append(c.ends, window.Start(cell.Sequence+1, cell.DurationMs()), cell.DurationMs(),
		c.s.expiresAtMs(cell, key))
	return len(c.places)
}

// heldKey names data of a cell's holds, by the cell's key.
func (b *bucket) heldKey(what, cell string) string {
	return b.heldHead + what + strings.TrimPrefix(cell, strings.TrimSuffix(b.heldHead, ":"))
}

// heads returns the keys before the cells' keys.
func (c *holdCall) heads(call *store.HoldCall) []string {
	id := ""
	if call.Record != nil {
		id = call.Record.ID
	}
	return []string{c.changesKey, c.heldHead + "calls:" + strconv.FormatUint(call.Stream, 16),
		c.heldHead + "record:" + string(appendEscaped(nil, id))}
}

func (c *holdCall) args(call *store.HoldCall) []any {
	var holds []any
	for i := range call.Holds {
		h := &call.Holds[i]
		cell, before := c.place(h.Cell), 0
		if hasBefore(h) {
			before = c.place(h.Before)
		}
		precise := ""
		if h.Precise {
			precise = formatHistory(&h.Cell, window.BeginHistory(h.Limit))
		}
		holds = append(holds, cell, before, h.Owner, h.Amount, h.After, upMs(h.TTL), bounded(h.Limit), int(h.As),
			formatEpoch(h.Epoch), h.Optional, h.Tentative, precise)
	}
	args := []any{formatEpoch(call.After.Epoch), call.After.Number, store.HoldKeptFor.Milliseconds(), store.HoldsMax,
		holdEndsMax}
	args = append(args, recordArgs(call.Record)...)
	return append(append(args, c.ends...), holds...)
}

func recordArgs(r *store.Record) []any {
	if r == nil {
		return []any{recordNone, "", "", 0, false, ""}
	}
	kind, attempt := recordNew, ""
	if r.Attempt != 0 {
		attempt = strconv.FormatUint(r.Attempt, 16)
	}
	switch {
	case r.Withdraw:
		return []any{recordWithdraw, r.Text, "", 0, true, attempt}
	case r.Restored:
		kind = recordRestored
	case r.Text == "":
		kind = recordChange
	}
	spent := make([]string, len(r.Spent))
	for i, n := range r.Spent {
		spent[i] = strconv.FormatInt(n, 10)
	}
	return []any{kind, r.Text, strings.Join(spent, ","), upMs(r.TTL), r.Settled, attempt}
}

// upMs rounds up, because a TTL of 0 ms has a meaning of its own.
func upMs(d time.Duration) int64 { return (d + time.Millisecond - 1).Milliseconds() }

func (c *holdCall) answer(call *store.HoldCall, r *scriptReply) store.HoldReply {
	reply := store.HoldReply{Epoch: r.epoch, Now: r.now}
	state, number := r.int(), r.int()
	if state == holdBehind {
		reply.Behind, reply.Have = true, number
		return reply
	}
	if reply.Emptied = state == holdEmptied; reply.Emptied {
		return reply
	}
	reply.Number, reply.Refused = number, state != holdApplied
	reply.Record = store.RecordAnswer{Text: r.text(), Spent: r.counts(), EndsMs: r.int(), Settled: r.int() == 1,
		Changed: r.int() == 1}
	if state == holdAnotherRecord {
		return reply
	}
	reply.Answers = make([]store.HoldAnswer, len(call.Holds))
	for i := range call.Holds {
		a := store.HoldAnswer{Held: r.int() == 1, Fits: r.int() == 1}
		many := r.int() == 1
		a.Used, a.UsedBefore, a.Open = r.int(), r.int(), r.int()
		if a.Total = r.total(c.keys.key(call.Holds[i].Cell), ""); many {
			a.Total.Err = store.ErrHolds
		}
		c.s.noteJunk(a.Total.Err)
		reply.Answers[i] = a
	}
	return reply
}
