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

// beatJSON is a heartbeat as a server keeps it, without the top keys, which are beside it. Readers must accept those of
// older and newer builds, so fields are only ever added.
type beatJSON struct {
	NodeID        []byte           `json:"node"`
	Region        []byte           `json:"region"`
	Build         string           `json:"build"`
	TuningVersion int64            `json:"tuning_version"`
	StartedAtMs   int64            `json:"started_at_ms"`
	SentAtMs      int64            `json:"sent_at_ms"`
	Health        heartbeat.Health `json:"health"`
	Stopped       bool             `json:"stopped,omitempty"`
}

func packBeat(b heartbeat.Beat) (string, error) {
	document, err := json.Marshal(beatJSON{[]byte(b.NodeID), []byte(b.Region), b.Build, b.TuningVersion,
		b.StartedAtMs, b.SentAtMs,
		b.Health, b.Stopped})
	if n := len(document) + len(b.Top); err == nil && n > store.BeatBytesMax {
		err = fmt.Errorf("it is %d bytes long (at most %d)", n, store.BeatBytesMax)
	}
	if err != nil {
		return "", fmt.Errorf("redisorigin: heartbeat of %q: %w", b.NodeID, err)
	}
	return string(document), nil
}

func unpackBeat(document, top string) (heartbeat.Beat, error) {
	var j beatJSON
	if err := json.Unmarshal([]byte(document), &j); err != nil {
		return heartbeat.Beat{}, err
	}
	return heartbeat.Beat{NodeID: string(j.NodeID), Region: string(j.Region), Build: j.Build,
		TuningVersion: j.TuningVersion,
		StartedAtMs:   j.StartedAtMs, SentAtMs: j.SentAtMs, Health: j.Health, Stopped: j.Stopped, Top: top}, nil
}

// Heartbeat implements store.Origin.
func (h *Origin) Heartbeat(ctx context.Context, beats ...heartbeat.Beat) error {
	args := []any{store.BeatsMax, store.NodeLiveFor.Microseconds()}
	for _, b := range beats {
		document, err := packBeat(b)
		if err != nil {
			return err
		}
		args = append(args, b.NodeID, document, b.Top, beatOrder(&b))
	}
	if len(beats) == 0 {
		return nil
	}
	return h.last.Call(ctx, len(h.shards), func(shard int) error {
		s := h.shards[shard]
		kept, err := s.beatsCall(ctx, keepBeatsScript, args...).Int()
		if err == nil && kept < len(beats) {
			err = fmt.Errorf("the origin keeps heartbeats of at most %d nodes for the relay", store.BeatsMax)
		}
		if err != nil {
			return fmt.Errorf("redisorigin: heartbeat of %q to %s: %w", beats[0].NodeID, s.where, err)
		}
		return nil
	})
}

// beatOrder is what the scripts compare: see heartbeat.Beat.Precedes.
func beatOrder(b *heartbeat.Beat) string {
	last := 0
	if b.Stopped {
		last = 1
	}
	return fmt.Sprintf("%d %d %d", bounded(max(0, b.StartedAtMs)), bounded(max(0, b.SentAtMs)), last)
}

// Beats implements store.RelayOrigin. What is no heartbeat is dropped, and counted as garbage.
func (h *Origin) Beats(ctx context.Context, shard, max int) ([]store.KeptBeat, error) {
	s, err := h.shard(shard, 0, nil)
	if err == nil && max < 1 {
		err = fmt.Errorf("redisorigin: beats: max is %d, want >= 1", max)
	}
	if err != nil {
		return nil, err
	}
	for range store.BeatsMax/max + 1 {
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

// beats takes some heartbeats, and drops as many as junk that are none.
func (s *shard) beats(ctx context.Context, max int) (beats []store.KeptBeat, junk int, err error) {
	reply, err := s.beatsCall(ctx, beatsScript, max, store.NodeLiveFor.Microseconds(), store.BeatBytesMax).Slice()
	if err != nil {
		return nil, 0, err
	}
	var drop []any
	for r := (scriptReply{rest: reply}); len(r.rest) > 0; {
		id, mark, waited, document, top := r.text(), r.text(), r.text(), r.text(), r.text()
		if r.bad {
			return nil, 0, errStrangeReply
		}
		b, err := keptBeat(id, mark, waited, document, top)
		if err != nil {
			s.noteJunk(fmt.Errorf("redisorigin: %s: the heartbeat of %.80q: %w: %w", s.buckets[0].beatsKey, id, errJunk, err))
			drop = append(drop, id, mark)
			continue
		}
		beats = append(beats, b)
	}
	if len(drop) > 0 {
		err = s.beatsCall(ctx, storedScript, drop...).Err()
	}
	return beats, len(drop) / 2, err
}

func keptBeat(id, mark, waited, document, top string) (store.KeptBeat, error) {
	b, err := unpackBeat(document, top)
	n, markErr := strconv.ParseInt(mark, 10, 64)
	age, ageErr := strconv.ParseInt(waited, 10, 64)
	if err := errors.Join(err, markErr, ageErr); err != nil {
		return store.KeptBeat{}, err
	}
	if b.NodeID != id {
		return store.KeptBeat{}, fmt.Errorf("it is that of %.80q", b.NodeID)
	}
	b.Age = time.Duration(age) * time.Microsecond
	return store.KeptBeat{Beat: b, Mark: n}, nil
}

// beatsCall runs a script on the heartbeats of a shard.
func (s *shard) beatsCall(ctx context.Context, script string, args ...any) *redis.Cmd {
	if err := ctx.Err(); err != nil {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(err)
		return cmd
	}
	b := s.buckets[0]
	return s.client.Eval(ctx, script, []string{b.beatsKey, b.beatKey}, args...)
}

// Stored implements store.RelayOrigin.
func (h *Origin) Stored(ctx context.Context, shard int, beats []store.KeptBeat) error {
	s, err := h.shard(shard, 0, nil)
	if err != nil {
		return err
	}
	var args []any
	for _, b := range beats {
		args = append(args, b.NodeID, strconv.FormatInt(b.Mark, 10))
	}
	if err := s.beatsCall(ctx, storedScript, args...).Err(); err != nil {
		return fmt.Errorf("redisorigin: %d stored beats at %s: %w", len(beats), s.where, err)
	}
	return nil
}
