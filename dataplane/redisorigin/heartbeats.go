package redisorigin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/heartbeat"
)

// heartbeatJSON is a heartbeat as a server keeps it. Its top keys are stored separately. Readers must accept heartbeats
// of older and newer builds, so fields must only be added.
type heartbeatJSON struct {
	NodeID        []byte           `json:"node"`
	Region        []byte           `json:"region"`
	Build         string           `json:"build"`
	TuningVersion int64            `json:"tuning_version"`
	StartedAtMs   int64            `json:"started_at_ms"`
	SentAtMs      int64            `json:"sent_at_ms"`
	Health        heartbeat.Health `json:"health"`
	Stopped       bool             `json:"stopped,omitempty"`
	Usage         string           `json:"usage,omitempty"`
}

func packHeartbeat(b heartbeat.Heartbeat) (string, error) {
	document, err := json.Marshal(heartbeatJSON{[]byte(b.NodeID), []byte(b.Region), b.Build, b.TuningVersion,
		b.StartedAtMs, b.SentAtMs,
		b.Health, b.Stopped, b.Usage})
	if n := len(document) + len(b.Top); err == nil && n > store.HeartbeatBytesMax {
		err = fmt.Errorf("it is %d bytes long (at most %d)", n, store.HeartbeatBytesMax)
	}
	if err != nil {
		return "", fmt.Errorf("redisorigin: heartbeat of %q: %w", b.NodeID, err)
	}
	return string(document), nil
}

func unpackHeartbeat(document, top string) (heartbeat.Heartbeat, error) {
	var j heartbeatJSON
	if err := json.Unmarshal([]byte(document), &j); err != nil {
		return heartbeat.Heartbeat{}, err
	}
	return heartbeat.Heartbeat{NodeID: string(j.NodeID), Region: string(j.Region), Build: j.Build,
		TuningVersion: j.TuningVersion,
		StartedAtMs:   j.StartedAtMs, SentAtMs: j.SentAtMs, Health: j.Health, Stopped: j.Stopped, Top: top,
		Usage: j.Usage}, nil
}

// Heartbeat implements store.Mailbox.
func (h *Origin) Heartbeat(ctx context.Context, beats ...heartbeat.Heartbeat) error {
	args := []any{store.WaitingHeartbeatsMax, store.NodeLiveFor.Microseconds()}
	for _, b := range beats {
		document, err := packHeartbeat(b)
		if err != nil {
			return err
		}
		args = append(args, b.NodeID, document, b.Top, heartbeatOrder(&b))
	}
	if len(beats) == 0 {
		return nil
	}
	return h.last.Call(ctx, len(h.shards), func(shard int) error {
		s := h.shards[shard]
		kept, err := s.heartbeatsCall(ctx, saveHeartbeatsScript, args...).Int()
		if err == nil && kept < len(beats) {
			err = fmt.Errorf("the origin keeps heartbeats of at most %d nodes for the relay", store.WaitingHeartbeatsMax)
		}
		if err != nil {
			return fmt.Errorf("redisorigin: heartbeat of %q to %s: %w", beats[0].NodeID, s.where, err)
		}
		return nil
	})
}

// heartbeatOrder returns the order that the scripts compare: see heartbeat.Heartbeat.Precedes.
func heartbeatOrder(b *heartbeat.Heartbeat) string {
	last := 0
	if b.Stopped {
		last = 1
	}
	return fmt.Sprintf("%d %d %d", bounded(max(0, b.StartedAtMs)), bounded(max(0, b.SentAtMs)), last)
}

// Heartbeats implements store.Mailbox. Values that are not heartbeats are dropped, and counted as garbage.
func (h *Origin) Heartbeats(ctx context.Context, shard, max int) ([]store.StoredHeartbeat, error) {
	s, err := h.shard(shard, 0, nil)
	if err == nil && max < 1 {
		err = fmt.Errorf("redisorigin: beats: max is %d, want >= 1", max)
	}
	if err != nil {
		return nil, err
	}
	for range store.WaitingHeartbeatsMax/max + 1 {
		beats, junk, err := s.beats(ctx, max)
		if err != nil {
			return nil, fmt.Errorf("redisorigin: beats at %s: %w", s.where, err)
		}
		if len(beats) > 0 || junk == 0 {
			return beats, nil
		}
	}
	return nil, nil
}

// beats returns waiting heartbeats. It drops malformed values, and returns their number as junk.
func (s *shard) beats(ctx context.Context, max int) (beats []store.StoredHeartbeat, junk int, err error) {
	reply, err := s.heartbeatsCall(ctx, heartbeatsScript, max, store.NodeLiveFor.Microseconds(),
		store.HeartbeatBytesMax).Slice()
	if err != nil {
		return nil, 0, err
	}
	var drop []any
	for r := (scriptReply{rest: reply}); len(r.rest) > 0; {
		id, mark, waited, document, top := r.text(), r.text(), r.text(), r.text(), r.text()
		if r.bad {
			return nil, 0, errStrangeReply
		}
		b, err := storedHeartbeat(id, mark, waited, document, top)
		if err != nil {
			s.noteJunk(fmt.Errorf("redisorigin: %s: the heartbeat of %.80q: %w: %w", s.buckets[0].heartbeatsKey, id,
				errJunk, err))
			drop = append(drop, id, mark)
			continue
		}
		beats = append(beats, b)
	}
	if len(drop) > 0 {
		err = s.heartbeatsCall(ctx, storedScript, drop...).Err()
	}
	return beats, len(drop) / 2, err
}

func storedHeartbeat(id, mark, waited, document, top string) (store.StoredHeartbeat, error) {
	b, err := unpackHeartbeat(document, top)
	n, markErr := strconv.ParseInt(mark, 10, 64)
	age, ageErr := strconv.ParseInt(waited, 10, 64)
	if err := errors.Join(err, markErr, ageErr); err != nil {
		return store.StoredHeartbeat{}, err
	}
	if b.NodeID != id {
		return store.StoredHeartbeat{}, fmt.Errorf("it is that of %.80q", b.NodeID)
	}
	b.Age = time.Duration(age) * time.Microsecond
	return store.StoredHeartbeat{Heartbeat: b, Mark: n}, nil
}

// heartbeatsCall runs a script on the heartbeats of a shard.
func (s *shard) heartbeatsCall(ctx context.Context, script string, args ...any) *redis.Cmd {
	return s.eval(ctx, script, []string{s.buckets[0].heartbeatsKey, s.buckets[0].heartbeatKey}, args...)
}

// AckHeartbeats implements store.Mailbox.
func (h *Origin) AckHeartbeats(ctx context.Context, shard int, beats []store.StoredHeartbeat) error {
	s, err := h.shard(shard, 0, nil)
	if err != nil {
		return err
	}
	var args []any
	for _, b := range beats {
		args = append(args, b.NodeID, strconv.FormatInt(b.Mark, 10))
	}
	if err := s.heartbeatsCall(ctx, storedScript, args...).Err(); err != nil {
		return fmt.Errorf("redisorigin: %d stored beats at %s: %w", len(beats), s.where, err)
	}
	return nil
}
