package main

import (
	"fmt"
	"strings"
)

// canvas collects the elements of a picture that explains. Its colors follow the reader's light or dark scheme.
type canvas struct{ b strings.Builder }

func newCanvas(height int, title string) *canvas {
	c := new(canvas)
	c.put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" `+
		`font-size="12">`, width, height)
	c.put(`<title>%s</title>`, title)
	c.put(`<style>text{fill:#333}.small{font-size:11px;fill:#555}.head{font-weight:bold}.box{fill:#eef3f8;stroke:#69c}` +
		`.room{fill:none;stroke:#bbb;stroke-dasharray:4 3}.gone{fill:none;stroke:#c33;stroke-dasharray:3 3}` +
		`.lost{fill:#c33}.arrow{stroke:#777;fill:none}.tip{fill:#777}.memory{fill:#9cc5e8}.waits{fill:#e0a030}` +
		`.denied{fill:none;stroke:#c33}` +
		`@media(prefers-color-scheme:dark){text{fill:#ddd}.small{fill:#aaa}.box{fill:#223344;stroke:#58a}` +
		`.room{stroke:#666}.gone{stroke:#f66}.lost{fill:#f66}.arrow{stroke:#999}.tip{fill:#999}.memory{fill:#58a}` +
		`.waits{fill:#d9a441}.denied{stroke:#f66}}</style>`)
	return c
}

func (c *canvas) put(format string, args ...any) { fmt.Fprintf(&c.b, format+"\n", args...) }

func (c *canvas) done() string {
	c.put(`</svg>`)
	return c.b.String()
}

// box draws a box with one line of text.
func (c *canvas) box(class string, x, y, w, h int, text string) {
	c.put(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="4"/>`, class, x, y, w, h)
	c.text("", "middle", x+w/2, y+h/2+4, text)
}

func (c *canvas) text(class, anchor string, x, y int, text string) {
	c.put(`<text class="%s" x="%d" y="%d" text-anchor="%s">%s</text>`, class, x, y, anchor, text)
}

// lines writes a text below another, 15 apart.
func (c *canvas) lines(class string, x, y int, lines ...string) {
	for i, line := range lines {
		c.text(class, "start", x, y+15*i, line)
	}
}

// upAndDown draws an arrow with two tips between two heights.
func (c *canvas) upAndDown(x, top, bottom int) {
	c.put(`<line class="arrow" x1="%d" y1="%d" x2="%d" y2="%d"/>`, x, top+5, x, bottom-5)
	c.put(`<path class="tip" d="M%d %dl-4 7h8zM%d %dl-4 -7h8z"/>`, x, top, x, bottom)
}

// region draws a region's three nodes, its Redis, and its relay, and the arrows between them.
func (c *canvas) region(x int, name string) {
	c.box("room", x, 14, 226, 196, "")
	c.text("head", "middle", x+113, 32, name)
	for node := range 3 {
		at := x + 12 + 70*node
		c.box("box", at, 46, 62, 30, "node")
		c.upAndDown(at+31, 80, 116)
	}
	c.box("box", x+12, 120, 202, 30, "Redis")
	c.upAndDown(x+113, 152, 170)
	c.box("box", x+73, 172, 80, 28, "relay")
	c.upAndDown(x+113, 204, 238)
}

// drawLayers returns the picture of the three layers.
func drawLayers() string {
	c := newCanvas(290, "Nodes decide in memory, Redis adds up a region, relays and MySQL connect the regions")
	c.region(10, "region eu")
	c.region(250, "region us")
	c.box("box", 10, 242, 466, 30, "MySQL")
	c.lines("head", 496, 58, "1. Nodes decide")
	c.lines("small", 496, 74, "in their own memory")
	c.lines("head", 496, 128, "2. Redis adds up")
	c.lines("small", 496, 144, "a region’s counts, every 100 ms")
	c.lines("head", 496, 184, "3. Relays exchange")
	c.lines("small", 496, 200, "the regions’ counts, every 200 ms,")
	c.lines("small", 496, 215, "through MySQL or directly")
	c.lines("small", 496, 255, "No request waits for another region.", "For Redis it waits at most 50 ms.")
	return c.done()
}

// way is how a request of a burst is decided.
type way int

const (
	wayMemory way = iota // in the node's memory
	wayWaits             // after the node has called Redis
	wayDenied            // in the node's memory: the limit is used up
)

const (
	burstLimit = 100
	burstNodes = 2
	burst      = 105
)

// waysOfABurst returns how one of several nodes decides each request of a burst, if no other node has used the key.
// The node may use its share unseen: what is left of the limit, divided by twice the number of nodes.
func waysOfABurst(limit, nodes, requests int) (ways []way) {
	confirmed, unconfirmed := 0, 0
	for len(ways) < requests {
		share := (limit - confirmed) / (2 * nodes)
		switch {
		case confirmed+unconfirmed == limit:
			ways = append(ways, wayDenied)
		case len(ways) == 0: // the node reads a key that it does not hold
			ways, unconfirmed = append(ways, wayWaits), 1
		case share > 1 && unconfirmed < share:
			ways, unconfirmed = append(ways, wayMemory), unconfirmed+1
		case unconfirmed == 0: // Redis decides
			ways, confirmed = append(ways, wayWaits), confirmed+1
		default: // the node sends what it has accepted, and waits for the reply
			confirmed, unconfirmed = confirmed+unconfirmed, 0
			if share = (limit - confirmed) / (2 * nodes); share > 1 {
				ways, unconfirmed = append(ways, wayWaits), 1
			}
		}
	}
	return ways
}

// drawKey returns the picture of a key's life on a node: how each request of a burst is decided.
func drawKey() string {
	const perRow, size, step = 35, 15, 19
	c := newCanvas(150, "Most requests are decided in memory; a new key, a used share and the last ones wait for Redis")
	classes := map[way]string{wayMemory: "memory", wayWaits: "waits", wayDenied: "denied"}
	for i, w := range waysOfABurst(burstLimit, burstNodes, burst) {
		c.put(`<rect class="%s" x="%d" y="%d" width="%d" height="%d" rx="2"/>`, classes[w], left/2+i%perRow*step,
			16+i/perRow*step, size, size)
	}
	for i, of := range []struct {
		w    way
		text string
	}{
		{wayMemory, "decided in memory"},
		{wayWaits, "waits for Redis"},
		{wayDenied, "denied, in memory"},
	} {
		at := left/2 + 200*i
		c.put(`<rect class="%s" x="%d" y="90" width="%d" height="%d" rx="2"/>`, classes[of.w], at, size, size)
		c.text("", "start", at+size+8, 102, of.text)
	}
	c.lines("small", left/2, 128, fmt.Sprintf("A burst of %d requests on one of %d nodes, limit %d. Read it line by line.",
		burst, burstNodes, burstLimit))
	return c.done()
}

// drawOutages returns the picture of what is left when a layer is gone.
func drawOutages() string {
	c := newCanvas(300, "Without MySQL each region goes on, without Redis each node, without a node the others")
	for i, of := range []struct {
		title, gone string
		text        []string
	}{
		{"MySQL is gone", "mysql", []string{"Each region goes on by itself.", "A caller can use the limit once",
			"in each region, unless relays", "reach each other directly.", "", "Afterwards: relays send the",
			"changes of the meantime."}},
		{"A region’s Redis is gone", "redis", []string{"Each node goes on by itself. The",
			"namespace’s outage policy decides:", "local, open or closed.", "", "Afterwards: nodes send their",
			"counts again, also to a Redis", "that comes back empty."}},
		{"A node is gone", "node", []string{"The other nodes answer.", "", "Its last cost is lost: as a rule that",
			"of 100 ms, at most of 240 ms with", "the default settings."}},
	} {
		x := 10 + 240*i
		c.text("head", "middle", x+105, 20, of.title)
		for node := range 3 {
			at := x + 70*node
			c.part(of.gone == "node" && node == 1, at, 34, 62, "node")
			c.upAndDown(at+31, 66, 86)
		}
		c.part(of.gone == "redis", x, 90, 202, "Redis")
		c.upAndDown(x+101, 122, 142)
		c.part(of.gone == "mysql", x, 146, 202, "MySQL")
		c.lines("small", x, 198, of.text...)
	}
	return c.done()
}

// part draws a server, crossed out if it is gone.
func (c *canvas) part(gone bool, x, y, w int, text string) {
	if !gone {
		c.box("box", x, y, w, 28, text)
		return
	}
	c.box("gone", x, y, w, 28, text)
	c.put(`<path class="gone" d="M%d %dL%d %dM%d %dL%d %d"/>`, x, y, x+w, y+28, x, y+28, x+w, y)
}
