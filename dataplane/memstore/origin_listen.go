package memstore

import (
	"context"
	"slices"
	"sync"

	"github.com/weirhq/weir/dataplane/store"
)

// listener is a call of Listen.
type listener struct {
	pending chan struct{} // holds something while there are messages

	mu       sync.Mutex
	messages [][]store.Foreign
}

// messagesMax is how many messages may wait for a listener; the oldest are dropped.
const messagesMax = 1024

func (l *listener) announce(raised []store.Foreign) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.messages) == messagesMax {
		l.messages = l.messages[1:]
	}
	l.messages = append(l.messages, raised)
	select {
	case l.pending <- struct{}{}:
	default:
	}
}

func (l *listener) take() (messages [][]store.Foreign) {
	l.mu.Lock()
	defer l.mu.Unlock()
	messages, l.messages = l.messages, nil
	return messages
}

// Listen implements store.Origin. A message takes half of Faults.Delay. If the Faults fail a message, Listen ends, as
// after a lost connection.
func (h *Origin) Listen(ctx context.Context, shard int, apply func([]store.Foreign)) error {
	l := &listener{pending: make(chan struct{}, 1)}
	err := h.call(ctx, OpListen, shard, func(s *originShard, _ store.Epoch) error {
		s.listeners[l] = true
		return nil
	})
	defer h.forget(shard, l)
	for err == nil {
		select {
		case <-ctx.Done():
			return nil
		case <-l.pending:
			err = h.deliver(ctx, shard, l.take(), apply)
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (h *Origin) deliver(ctx context.Context, shard int, messages [][]store.Foreign,
	apply func([]store.Foreign)) error {
	for i, m := range messages {
		j, err := h.depart(ctx, OpListen, shard)
		if err != nil {
			return err
		}
		if i == 0 { // they travel together
			if err := j.comeBack(ctx); err != nil {
				return err
			}
		}
		apply(slices.Clone(m))
	}
	return nil
}

func (h *Origin) forget(shard int, l *listener) {
	if shard < 0 || shard >= len(h.shards) {
		return
	}
	h.originServers.mu.Lock()
	defer h.originServers.mu.Unlock()
	delete(h.shards[shard].listeners, l)
}
