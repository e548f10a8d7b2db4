package network

import (
	"context"
	"sync"
	"time"

	"github.com/weirhq/weir/dataplane/store"
)

// Listen implements store.Origin. Messages take half a round trip and keep their order. A message is lost if the link
// is cut or loses it. If the link refuses a message, the connection ends.
func (h *Origin) Listen(ctx context.Context, shard int, apply func([]store.Foreign)) error {
	err := h.call(ctx, originListen, shard, 0, func(context.Context) error { return nil })
	if err != nil {
		return endOf(ctx, err)
	}
	connected, cut := context.WithCancelCause(ctx)
	box := &mailbox{filled: make(chan struct{}, 1)}
	var connection sync.WaitGroup
	defer connection.Wait()
	defer cut(nil)
	connection.Go(func() {
		cut(h.FullOrigin.Listen(connected, shard, func(m []store.Foreign) {
			if err := h.post(box, shard, m); err != nil {
				cut(err)
			}
		}))
	})
	box.read(connected, func(m []store.Foreign) {
		h.Meters.Messages.Add(1)
		h.Meters.MessageCells.Add(int64(len(m)))
		apply(m)
	})
	return endOf(ctx, context.Cause(connected))
}

// endOf returns the error of a connection that was lost or not made.
func endOf(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return nil
	default:
		return err
	}
}

// post puts a message on its way. An error ends the connection.
func (h *Origin) post(box *mailbox, shard int, totals []store.Foreign) error {
	v, err := h.Link.embarkTo(originMessage, shard)
	if err != nil {
		return err
	}
	if !v.sunk && !v.mute {
		box.put(message{time.Now().Add(v.back), totals})
	}
	return nil
}

// message has the time of its arrival.
type message struct {
	at     time.Time
	totals []store.Foreign
}

// mailbox holds the messages on their way over a connection.
type mailbox struct {
	filled chan struct{} // has capacity 1; filled while there are messages

	mu       sync.Mutex
	messages []message
}

func (b *mailbox) put(m message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.messages = append(b.messages, m)
	select {
	case b.filled <- struct{}{}:
	default:
	}
}

func (b *mailbox) take() (messages []message) {
	b.mu.Lock()
	defer b.mu.Unlock()
	messages, b.messages = b.messages, nil
	return messages
}

// read applies messages in order, as they arrive, until ctx ends.
func (b *mailbox) read(ctx context.Context, apply func([]store.Foreign)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-b.filled:
		}
		for _, m := range b.take() {
			if Pause(ctx, time.Until(m.at), originMessage) != nil {
				return
			}
			apply(m.totals)
		}
	}
}
