package redisorigin

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
)

// scriptReply is a script's answer: its head, and the rest, which readers take from the front.
type scriptReply struct {
	epoch store.Epoch
	now   time.Time
	rest  []any
	bad   bool // something in it was none of the script's
}

// errStrangeReply does not show whether the command was applied.
var errStrangeReply = errors.New("the reply does not have the form of the script's replies")

// scriptReplyOf reads a reply with a head.
func scriptReplyOf(cmd *redis.Cmd, pipelineErr error) (*scriptReply, error) {
	reply, err := replyOf(cmd, pipelineErr)
	if err != nil {
		return nil, err
	}
	list, _ := reply.([]any)
	if len(list) < 3 {
		return nil, fmt.Errorf("%w: %.100q", errStrangeReply, fmt.Sprint(reply))
	}
	epoch, _ := list[0].(string)
	e, epochErr := strconv.ParseUint(epoch, 10, 32)
	if epochErr != nil || e == 0 || formatEpoch(store.Epoch(e)) != epoch {
		return nil, fmt.Errorf("%w: the epoch is %.100q", errStrangeReply, fmt.Sprint(list[0]))
	}
	now, err := clockOf(list[1], list[2])
	return &scriptReply{epoch: store.Epoch(e), now: now, rest: list[3:]}, err
}

// clockOf reads the reply of TIME.
func clockOf(seconds, micros any) (time.Time, error) {
	s, _ := seconds.(string)
	us, _ := micros.(string)
	sec, err1 := strconv.ParseInt(s, 10, 64)
	usec, err2 := strconv.ParseInt(us, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return time.Time{}, fmt.Errorf("%w: the clock: %w", errStrangeReply, err)
	}
	return time.Unix(sec, usec*int64(time.Microsecond)), nil
}

// int takes an integer.
func (r *scriptReply) int() int64 {
	if len(r.rest) == 0 {
		r.bad = true
		return 0
	}
	n, ok := r.rest[0].(int64)
	r.rest, r.bad = r.rest[1:], r.bad || !ok
	return n
}

// text takes a string.
func (r *scriptReply) text() string {
	if len(r.rest) == 0 {
		r.bad = true
		return ""
	}
	s, ok := r.rest[0].(string)
	r.rest, r.bad = r.rest[1:], r.bad || !ok
	return s
}

// counts takes counts that are joined by commas, nil if there are none.
func (r *scriptReply) counts() (all []int64) {
	for n := range strings.SplitSeq(r.text(), ",") {
		if count, ok := parseCount(n); ok {
			all = append(all, count)
		} else if n != "" || all != nil {
			r.bad = true
		}
	}
	return all
}

// end returns an error if a reply is malformed, or has more values than were read.
func (r *scriptReply) end() error {
	if r.bad || len(r.rest) > 0 {
		return errStrangeReply
	}
	return nil
}

// total takes a cell's region and foreign totals, or why there are none.
func (r *scriptReply) total(key, problem string) store.Total {
	region, foreign := r.int(), r.int()
	t := store.Total{Epoch: r.epoch}
	switch {
	case region == cellEpoch:
		t.Err = store.ErrEpoch
	case region == cellJunk:
		t.Err = fmt.Errorf("redisorigin: %s: %w", key, errJunk)
	case region == cellUnwritten:
		t.Err = fmt.Errorf("redisorigin: %s: cannot be written: %s", key, problem)
	case region < 0 || foreign < 0 || region > store.CountMax || foreign > store.CountMax:
		r.bad = true
	default:
		t.Region, t.Foreign = region, foreign
	}
	return t
}

var errJunk = errors.New("holds something other than a cell's counts")

// noteJunk counts cells that hold no counts, and logs the first.
func (l *layout) noteJunk(err error) {
	if errors.Is(err, errJunk) {
		l.garbage.Add(1)
		l.garbageOnce.Do(func() {
			l.logger.Error("a value at the origin is not a count; further ones are not logged", "problem", err)
		})
	}
}
