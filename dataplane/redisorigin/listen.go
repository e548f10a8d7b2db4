package redisorigin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/dataplane/store"
	"github.com/weirhq/weir/shared/window"
)

// listenPing is how long a listener waits for a message before it pings the server, and then for the answer.
const listenPing = 5 * time.Second

// Listen implements store.Origin, over a connection of its own.
func (h *Origin) Listen(ctx context.Context, shard int, apply func([]store.Foreign)) error {
	s, err := h.shard(shard, 0, nil)
	if err != nil {
		return err
	}
	subscription := s.client.Subscribe(ctx, s.channel)
	closed := context.AfterFunc(ctx, func() { _ = subscription.Close() }) // ends a Receive
	err = s.listen(ctx, subscription, apply)
	if closed() {
		_ = subscription.Close() // err is more specific
	}
	if ctx.Err() == nil {
		return fmt.Errorf("redisorigin: listen at %s: %w", s.where, err)
	}
	return nil
}

// listen receives messages until a connection is lost.
func (s *shard) listen(ctx context.Context, subscription *redis.PubSub, apply func([]store.Foreign)) error {
	for asked := false; ; {
		message, err := subscription.ReceiveTimeout(ctx, listenPing)
		var timeout net.Error
		switch {
		case err == nil:
			asked = false
			if m, ok := message.(*redis.Message); ok {
				s.deliver(m.Payload, apply)
			}
		case ctx.Err() == nil && !asked && errors.As(err, &timeout) && timeout.Timeout():
			asked = true
			if err := subscription.Ping(ctx); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// deliver reads a message: a line for each cell, its key and its count.
func (s *shard) deliver(payload string, apply func([]store.Foreign)) {
	var totals []store.Foreign
	for line := range strings.SplitSeq(payload, "\n") {
		key, text, _ := strings.Cut(line, " ")
		count, isCount := parseCount(text)
		cell, ok := s.cellOf(key)
		if !ok || !isCount || count > store.CountMax {
			s.noteJunk(fmt.Errorf("redisorigin: a message on %s: %w", s.channel, errJunk))
			continue
		}
		totals = append(totals, store.Foreign{Cell: cell, Count: count})
	}
	if len(totals) > 0 {
		apply(totals)
	}
}

// cellOf returns the cell of a key of any bucket.
func (s *shard) cellOf(key string) (window.Cell, bool) {
	name, ok := strings.CutPrefix(key, s.prefix+":{")
	if !ok {
		return window.Cell{}, false
	}
	name, _, _ = strings.Cut(name, "}")
	b := s.byName[name]
	if b == nil {
		return window.Cell{}, false
	}
	c, err := b.keys.cell(key)
	return c, err == nil && s.bucketOf(&c.Key) == b
}
