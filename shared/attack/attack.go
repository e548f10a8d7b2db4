// Package attack plays hostile clients of HTTP/2 in tests. It sends single frames, in ways in which no library would
// send them.
//
//	during := attack.Watch()
//	conns := attack.Send(t, address, 100, attack.Floods(path, "application/json")["pings"])
//	…                   // the server answers others meanwhile
//	attack.Close(conns)
//	during.Small(t, 100<<20)
//
// When not to use it: outside of tests.
package attack

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// stuck is how long a flood waits for a server that stops reading. Such a flood is throttled, and stays connected.
const stuck = 500 * time.Millisecond

// Client sends the frames of a single connection.
type Client struct {
	*http2.Framer

	out    *bufio.Writer
	conn   net.Conn
	packed *hpack.Encoder
	fields bytes.Buffer
}

// Flood sends frames until all of them are sent, or Flush fails.
type Flood func(c *Client) error

// Send begins n connections to address from 127.0.0.2, each of which plays its flood once and reads nothing. It returns
// when all floods are played, which includes connections that the server closes or stops reading. Under the race
// detector, where no memory is measured, there are at most 16.
func Send(t testing.TB, address string, n int, play Flood) (conns []net.Conn) {
	t.Helper()
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	if raced {
		n = min(n, 16)
	}
	var playing sync.WaitGroup
	for range n {
		conn, err := from.DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		// Small buffers keep unread answers in the server.
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		playing.Go(func() { _ = newClient(conn).play(play) })
	}
	playing.Wait()
	return conns
}

// Close closes the connections.
func Close(conns []net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

func newClient(conn net.Conn) *Client {
	c := &Client{conn: conn, out: bufio.NewWriterSize(conn, 16<<10)}
	c.Framer, c.packed = http2.NewFramer(c.out, conn), hpack.NewEncoder(&c.fields)
	c.AllowIllegalWrites = true
	return c
}

// play begins with a window of no bytes, so that it accepts no answer's body.
func (c *Client) play(flood Flood) error {
	_, _ = io.WriteString(c.out, http2.ClientPreface)
	_ = c.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	if err := flood(c); err != nil {
		return err
	}
	return c.Flush()
}

// Flush sends the frames written so far.
func (c *Client) Flush() error {
	_ = c.conn.SetWriteDeadline(time.Now().Add(stuck))
	return c.out.Flush()
}

// Block packs header fields: first the fields that every request has, then names and values in turn.
func (c *Client) Block(method, path string, more ...string) []byte {
	c.fields.Reset()
	all := append([]string{":method", method, ":scheme", "http", ":authority", "localhost", ":path", path}, more...)
	for i := 0; i < len(all); i += 2 {
		_ = c.packed.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]})
	}
	return bytes.Clone(c.fields.Bytes())
}

// Begin begins a request with a body.
func (c *Client) Begin(id uint32, block []byte) {
	_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true})
}
