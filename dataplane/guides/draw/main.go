// Command draw draws the pictures of the guides. The two pictures of window.md show a limiter's decisions, a picture
// for each kind of window. The pictures of how-it-works.md show the layers, the life of a key on a node, and outages.
// Run it as "go run ./dataplane/guides/draw shared/gen/pictures", as make generate does.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/dataplane"
	"github.com/weirhq/weir/dataplane/memstore"
	"github.com/weirhq/weir/dataplane/store"
)

const (
	limit    = 100 // a minute
	duration = time.Minute
	lasts    = 4 * duration
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: draw folder")
	}
	for name, draw := range pictures {
		picture, err := draw()
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Args[1], name), []byte(picture), 0o644)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
}

// pictures draw the file of each name.
var pictures = map[string]func() (string, error){
	"window-cells.svg":   func() (string, error) { return drawWindow(store.WindowCells) },
	"window-precise.svg": func() (string, error) { return drawWindow(store.WindowPrecise) },
	"layers.svg":         func() (string, error) { return drawLayers(), nil },
	"key.svg":            func() (string, error) { return drawKey(), nil },
	"outages.svg":        func() (string, error) { return drawOutages(), nil },
}

// admitted returns how many requests a limiter lets pass in each second. The caller spends the limit five seconds
// before the first minute ends, and from then on sends ten requests a second.
func admitted(window store.Window) (perSecond []int, err error) {
	start := time.Unix(0, 0).Add(100 * 365 * 24 * time.Hour).Truncate(duration)
	var passed atomic.Int64 // since start; the limiter's loops read the clock too
	clock := func() time.Time { return start.Add(time.Duration(passed.Load())) }
	counts := memstore.NewCounts(memstore.CountsOptions{Clock: clock})
	counts.SetNamespaces(store.NamespaceRow{Workspace: "acme", Namespace: "login", Window: window})
	limiter, err := dataplane.New(dataplane.Config{Region: "here", Settings: counts, Clock: clock})
	if err != nil {
		return nil, err
	}
	ctx := context.Background()
	request := dataplane.Request{Workspace: "acme", Namespace: "login", Identifier: "ann", Limit: limit,
		Duration: duration}
	if err := limiter.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, limiter.Stop(ctx)) }()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if x, err := limiter.Explain(request); err != nil || x.Window == string(window) {
			break
		}
		if time.Since(began) > time.Minute {
			return nil, errors.New("the limiter has not read its settings")
		}
	}
	perSecond = make([]int, lasts/time.Second)
	for at := duration - 5*time.Second; at < lasts; at += 100 * time.Millisecond {
		passed.Store(int64(at))
		asks := 1
		if at < duration {
			asks = 2 // 100 in five seconds
		}
		for range asks {
			if limiter.AllowAt(ctx, start.Add(at), request).Allowed {
				perSecond[at/time.Second]++
			}
		}
	}
	return perSecond, nil
}

const (
	width, height = 720, 260
	left, bottom  = 40, 220
	perMs         = float64(width-left-20) / float64(lasts/time.Second)
	perUnit       = 0.9
)

func x(second int) float64 { return left + float64(second)*perMs }

func y(units int) float64 { return bottom - float64(units)*perUnit }

// drawWindow returns a picture as SVG: a bar for each second in which requests passed, and a line for how many passed
// in the minute that ends there.
func drawWindow(window store.Window) (string, error) {
	perSecond, err := admitted(window)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	put := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	put(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="12">`,
		width, height)
	put(`<title>Requests that pass with window %s, and how many of them in the last minute</title>`, window)
	put(`<style>text{fill:#333}.axis{stroke:#999}.bar{fill:#69c}.line{fill:none;stroke:#c33;stroke-width:2}` +
		`.limit{stroke:#393;stroke-dasharray:6 4}` +
		`@media(prefers-color-scheme:dark){text{fill:#ccc}.axis{stroke:#777}.bar{fill:#58a}` +
		`.line{stroke:#f66}.limit{stroke:#6c6}}` +
		`</style>`)
	for minute := range int(lasts/duration) + 1 {
		at := x(minute * 60)
		put(`<line class="axis" x1="%.1f" y1="20" x2="%.1f" y2="%d"/>`, at, at, bottom)
		put(`<text x="%.1f" y="%d" text-anchor="middle">%d min</text>`, at, bottom+18, minute)
	}
	for _, units := range []int{0, limit, 2 * limit} {
		put(`<text x="%d" y="%.1f" text-anchor="end">%d</text>`, left-6, y(units)+4, units)
	}
	put(`<line class="axis" x1="%d" y1="%d" x2="%d" y2="%d"/>`, left, bottom, width-20, bottom)
	put(`<line class="limit" x1="%d" y1="%.1f" x2="%d" y2="%.1f"/>`, left, y(limit), width-20, y(limit))
	var line []string
	last := 0
	for second, n := range perSecond {
		if last += n; second >= 60 {
			last -= perSecond[second-60]
		}
		if n > 0 {
			put(`<rect class="bar" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, x(second), y(n), perMs, float64(n)*perUnit)
		}
		line = append(line, fmt.Sprintf("%.1f,%.1f", x(second+1), y(last)))
	}
	put(`<polyline class="line" points="%s"/>`, strings.Join(line, " "))
	put(`<text x="%d" y="%d">bars: passed each second · line: passed in the last minute · dashes: the limit</text>`, left,
		bottom+36)
	put(`</svg>`)
	return b.String(), nil
}
