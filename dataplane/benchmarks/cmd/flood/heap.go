package main

import (
	"runtime"
	"runtime/metrics"
	"time"
)

const (
	metricObjects = "/memory/classes/heap/objects:bytes" // live, and dead but not yet swept
	metricLive    = "/gc/heap/live:bytes"                // left by the last collection

	sampleEvery = 5 * time.Millisecond
)

// heapWatch samples the heap until it is stopped.
type heapWatch struct {
	quit, done       chan struct{}
	before, max, top uint64 // objects at the start, most objects, most live
}

func watchHeap() *heapWatch {
	runtime.GC()
	w := &heapWatch{quit: make(chan struct{}), done: make(chan struct{})}
	w.sample()
	w.before = w.max
	go func() {
		defer close(w.done)
		tick := time.NewTicker(sampleEvery)
		defer tick.Stop()
		for {
			select {
			case <-w.quit:
				w.sample()
				return
			case <-tick.C:
				w.sample()
			}
		}
	}()
	return w
}

func (w *heapWatch) sample() {
	samples := []metrics.Sample{{Name: metricObjects}, {Name: metricLive}}
	metrics.Read(samples)
	w.max = max(w.max, samples[0].Value.Uint64())
	w.top = max(w.top, samples[1].Value.Uint64())
}

// stop ends the sampling. All are bytes.
func (w *heapWatch) stop() (before, heapMax, liveMax uint64) {
	close(w.quit)
	<-w.done
	return w.before, w.max, w.top
}
