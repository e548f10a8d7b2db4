package peers

import (
	"context"
	"net"

	"github.com/weirhq/weir/dataplane/store"
)

// Network is how peers reach each other.
type Network interface {
	Listen(ctx context.Context, address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
	Lookup(ctx context.Context, host string) (addresses []string, err error)
}

// Over has peers use a network, before they are started.
func Over(p *Peers, n Network) *Peers {
	p.network = network{listen: n.Listen, dial: n.Dial, lookup: n.Lookup}
	return p
}

// What tests hold against.
const (
	QueueRowsMax     = queueRowsMax
	QueueBytesMax    = queueBytesMax
	StreamsMax       = streamsMax
	SendTimeout      = sendTimeout
	HelloTimeout     = helloTimeout
	StreamAge        = streamAge
	ConnectionAgeMax = connectionAgeMax
)

// TLSOf is the configured one.
func TLSOf(p *Peers) *TLS { return p.cfg.TLS }

// Queue is a queue.
type Queue struct{ *queue }

// NewQueue makes one that is not open.
func NewQueue() Queue { return Queue{newQueue()} }

// SetOpen is setOpen.
func (q Queue) SetOpen(open bool) int { return q.setOpen(open) }

// Push is push.
func (q Queue) Push(row store.FeedRow) (bool, int) { return q.push(row) }

// Take is take.
func (q Queue) Take(ctx context.Context) (store.FeedRow, bool) { return q.take(ctx) }
