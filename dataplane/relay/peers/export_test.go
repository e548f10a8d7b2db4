package peers

import (
	"context"
	"net"

	"github.com/weirhq/weir/dataplane/store"
)

// Network connects peers in tests.
type Network interface {
	Listen(ctx context.Context, address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
	Lookup(ctx context.Context, host string) (addresses []string, err error)
}

// Over makes peers use a network. It must be called before Start.
func Over(p *Peers, n Network) *Peers {
	p.network = network{listen: n.Listen, dial: n.Dial, lookup: n.Lookup}
	return p
}

// Bounds that tests check.
const (
	QueueRowsMax     = queueRowsMax
	QueueBytesMax    = queueBytesMax
	StreamsMax       = streamsMax
	SendTimeout      = sendTimeout
	HelloTimeout     = helloTimeout
	StreamAge        = streamAge
	ConnectionAgeMax = connectionAgeMax
)

// TLSOf returns the TLS of the peers' Config.
func TLSOf(p *Peers) *TLS { return p.cfg.TLS }

// Queue exports queue.
type Queue struct{ *queue }

// NewQueue returns a closed queue.
func NewQueue() Queue { return Queue{newQueue()} }

// SetOpen calls setOpen.
func (q Queue) SetOpen(open bool) int { return q.setOpen(open) }

// Push calls push.
func (q Queue) Push(row store.FeedRow) (bool, int) { return q.push(row) }

// Take calls take.
func (q Queue) Take(ctx context.Context) (store.FeedRow, bool) { return q.take(ctx) }
